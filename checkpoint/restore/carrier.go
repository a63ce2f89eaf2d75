package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// checkCarrier notes which device without carrier cuts the attachment off.
func (w *attachmentRestore) checkCarrier() {
	o := w.outcome
	o.namespace, o.parentIndex = w.sandbox.Identity(), w.parent.Index
	switch {
	case !w.record.Interface.Link.Up: // As recorded.
	case onHost(&w.record) && !w.parent.Carrier:
		o.NoCarrier = w.parent.Name
	case !w.carrier:
		o.NoCarrier, o.ownLink = w.record.Interface.Link.Name, true
	}
}

// awaitCarrier waits for carrier, and announces what is owed as soon as there is some. A device that has just been set up has
// carrier a moment later, so the first look reports nothing.
func (c *chainRestore) awaitCarrier(ctx context.Context) {
	start := time.Now()
	rest := c.pending(c.outcomes)
	for first := true; !c.run.DryRun && len(rest) > 0; first = false {
		if rest, c.unannounced = c.announceConnected(rest); len(c.unconnected(rest)) == 0 || time.Since(start) >= c.run.Wait || ctx.Err() != nil {
			break
		}
		if !first {
			c.setWaiting(c.cutOffLines(c.unconnected(rest)))
		}
		wait.Sleep(ctx, pollInterval)
	}
	c.report.WaitDuration += time.Since(start)
	c.setWaiting(nil)
}

// reportUnconnected reports what is still cut off when all chains are done. Another chain may have been at work on a sandbox when its
// announcement was to be noted, so this one tries once more.
func (c *chainRestore) reportUnconnected(ctx context.Context) {
	rest := c.pending(c.outcomes)
	if !c.run.DryRun && len(rest) > 0 && len(c.run.chains) > 1 {
		rest, c.unannounced = c.announceConnected(rest)
	}
	if ctx.Err() != nil && !c.run.DryRun {
		for _, o := range rest {
			o.addInterruptReason()
		}
	}
	for _, text := range cutOffLines(rest) {
		c.report.problem(text)
	}
	if c.unannounced != nil {
		c.report.problem(printable.Joined(c.unannounced))
	}
}

// addInterruptReason adds to the reason what the attachment lacks because of an interrupt.
func (o *Outcome) addInterruptReason() {
	text := "interrupted before the neighbours were told"
	if o.NoCarrier != "" {
		text = "interrupted while waiting for carrier of " + o.NoCarrier
		if o.AnnouncementOwed {
			text += "; the neighbours are not told yet"
		}
	}
	o.Reason = joinReasons(o.Reason, text)
}

// pending returns the attachments that are as recorded and lack only carrier or an
// announcement.
func (c *chainRestore) pending(outcomes []*Outcome) (rest []*Outcome) {
	c.outcomesMu.Lock()
	defer c.outcomesMu.Unlock()
	return pending(outcomes)
}

// unconnected returns those of the attachments that still wait for carrier or for their announcement. The others lack only the
// note of it: reportUnconnected writes that when all chains are done.
func (c *chainRestore) unconnected(outcomes []*Outcome) []*Outcome {
	c.outcomesMu.Lock()
	defer c.outcomesMu.Unlock()
	return slices.DeleteFunc(slices.Clone(outcomes), func(o *Outcome) bool { return o.owedInRecordOnly })
}

// cutOffLines is the function of that name, while nobody changes the outcomes.
func (c *chainRestore) cutOffLines(outcomes []*Outcome) []string {
	c.outcomesMu.Lock()
	defer c.outcomesMu.Unlock()
	return cutOffLines(outcomes)
}

func pending(outcomes []*Outcome) (rest []*Outcome) {
	for _, o := range outcomes {
		if o.IsAsRecorded() && (o.NoCarrier != "" || o.AnnouncementOwed) {
			rest = append(rest, o)
		}
	}
	return rest
}

// announceConnected looks for carrier again and announces what it can. It returns the attachments that
// still lack something.
func (c *chainRestore) announceConnected(outcomes []*Outcome) ([]*Outcome, error) {
	devices, err := c.run.host.Devices()
	if err != nil {
		return outcomes, err
	}
	c.lastDevices = devices
	c.outcomesMu.Lock()
	defer c.outcomesMu.Unlock()
	var failed []error
	for _, o := range outcomes {
		if !o.hasCarrier(devices) {
			continue
		}
		o.NoCarrier = ""
		if o.AnnouncementOwed {
			failed = append(failed, c.run.announceOwed(o))
		}
	}
	return pending(outcomes), errors.Join(failed...)
}

// hasCarrier says that the attachment has carrier now.
func (o *Outcome) hasCarrier(host netstate.Devices) bool {
	switch {
	case o.NoCarrier == "":
		return true
	case o.ownLink:
		return o.ownLinkHasCarrier()
	}
	parent, exists := host.ByIndex(o.parentIndex)
	return exists && parent.Carrier
}

// ownLinkHasCarrier also returns true for an interface that has gone with its sandbox.
func (o *Outcome) ownLinkHasCarrier() bool {
	sandbox, err := kernel.OpenSame(o.namespace)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	devices, err := sandbox.Devices()
	d, exists := devices.ByName(o.NoCarrier)
	return err == nil && (!exists || d.Carrier)
}

// cutOffLines returns a line for each cause: how many attachments it cuts off, and how many of them
// are not announced yet.
func cutOffLines(outcomes []*Outcome) (lines []string) {
	var causes []string
	count, owed := map[string]int{}, map[string]int{}
	for _, o := range outcomes {
		cause := o.cutOffCause()
		causes = appendNew(causes, cause)
		count[cause]++
		if o.AnnouncementOwed {
			owed[cause]++
		}
	}
	for _, cause := range causes {
		lines = append(lines, cause+": "+cutOffCount(count[cause], owed[cause]))
	}
	return lines
}

// cutOffCount says that so many attachments are cut off, and for how many of them an announcement is owed.
func cutOffCount(count, owed int) string {
	text, announced, pronoun := fmt.Sprintf("%d attachments cut off", count), fmt.Sprintf("%d of them not", owed), "them"
	switch {
	case count == 1:
		text, announced, pronoun = "1 attachment cut off", "not", "it"
	case owed == count:
		announced = "none of them"
	}
	if owed == 0 {
		return text
	}
	return fmt.Sprintf("%s, %s announced yet: relink restore announces %s when there is carrier", text, announced, pronoun)
}

// cutOffCause says why the attachment is not connected.
func (o Outcome) cutOffCause() string {
	switch {
	case o.NoCarrier == "":
		return cmp.Or(o.Parent, o.Interface.Link.Name) + " has carrier, but the neighbours do not know yet"
	case !o.ownLink:
		return o.NoCarrier + " has no carrier"
	}
	return fmt.Sprintf("%s of %s has no carrier", o.NoCarrier, o.sandboxName())
}

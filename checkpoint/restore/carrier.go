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
	for first := true; !c.run.DryRun; first = false {
		lines := c.announceConnected()
		if len(lines) == 0 || time.Since(start) >= c.run.Wait || ctx.Err() != nil {
			break
		}
		if !first {
			c.setWaiting(lines)
		}
		wait.Sleep(ctx, pollInterval)
	}
	c.report.WaitDuration += time.Since(start)
	c.setWaiting(nil)
}

// reportUnconnected reports what is still cut off when all chains are done. Another chain may have been at work on a sandbox when its
// announcement was to be noted, so this one tries once more.
func (c *chainRestore) reportUnconnected(ctx context.Context) {
	if !c.run.DryRun && len(c.run.chains) > 1 {
		c.announceConnected()
	}
	rest := pending(c.outcomes)
	for _, o := range rest {
		if ctx.Err() != nil && !c.run.DryRun {
			o.Reason = joinReasons(o.Reason, "interrupted: "+o.cutOffCause())
		}
	}
	for _, text := range cutOffLines(rest) {
		c.report.problem(text)
	}
	if c.unannounced != nil {
		c.report.problem(printable.Joined(c.unannounced))
	}
}

// pending returns the attachments that are as recorded and lack only carrier or an announcement.
func pending(outcomes []*Outcome) (rest []*Outcome) {
	for _, o := range outcomes {
		if o.IsAsRecorded() && (o.NoCarrier != "" || o.AnnouncementOwed) {
			rest = append(rest, o)
		}
	}
	return rest
}

// announceConnected looks for carrier again and announces what it can. It returns a line for each cause for which attachments still
// wait. Those that lack only the note of their announcement do not: reportUnconnected writes that when all chains are done.
func (c *chainRestore) announceConnected() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := pending(c.outcomes)
	if len(rest) == 0 {
		return nil
	}
	devices, err := c.run.host.Devices()
	if err != nil {
		c.unannounced = err
		return cutOffLines(rest)
	}
	c.lastDevices = devices
	var failed []error
	for _, o := range rest {
		if !o.hasCarrier(devices) {
			continue
		}
		o.NoCarrier = ""
		if o.AnnouncementOwed {
			failed = append(failed, c.run.announceOwed(o))
		}
	}
	c.unannounced = errors.Join(failed...)
	return cutOffLines(slices.DeleteFunc(pending(rest), func(o *Outcome) bool { return o.owedInRecordOnly }))
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
		line := fmt.Sprintf("%s: attachments cut off: %d", cause, count[cause])
		if owed[cause] > 0 {
			line += fmt.Sprintf(", not announced yet: %d: relink restore announces them when there is carrier", owed[cause])
		}
		lines = append(lines, line)
	}
	return lines
}

// cutOffCause says why the attachment is not connected.
func (o Outcome) cutOffCause() string {
	device := cmp.Or(o.NoCarrier, o.Parent)
	if o.ownLink || device == "" {
		device = o.Interface.Link.Name + " of " + o.sandboxName()
	}
	if o.NoCarrier == "" {
		return device + " has carrier, but the neighbours do not know yet"
	}
	return device + " has no carrier"
}

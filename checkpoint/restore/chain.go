package restore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// chainRestore is the restore of one Chain. The chains of one run are restored at the same time.
type chainRestore struct {
	run     *restoreRun
	records []checkpoint.Record
	// host has the parents in the host. While sandboxes are restored, the mutex of attachments guards its plans.
	host parentRestore
	// attachments are those of the records.
	attachments *announcements
	// report has everything else that the run reports about the chain.
	report Report
	// waitingFor is what the chain waits for. The run's mu guards it.
	waitingFor []string
}

// newChains makes the run's chains of the records.
func (r *restoreRun) newChains(records []checkpoint.Record) {
	sandboxes := map[string]*sandboxRestore{}
	for _, group := range Chains(records, r.opts.Mapped) {
		c := &chainRestore{
			run: r, records: group.Records,
			attachments: &announcements{node: r.node, comesAgain: r.opts.Task != nil},
			host: parentRestore{
				namespace: r.node.host, recorded: r.recorded, options: r.opts.ParentOptions, chains: parentChains(group.Records), dryRun: r.opts.DryRun,
			},
		}
		for i := range c.records {
			s := newState(&c.records[i])
			id := s.outcome.Attachment.ContainerID
			if sandboxes[id] == nil {
				sandboxes[id] = &sandboxRestore{}
			}
			s.chain, s.sandbox = c, sandboxes[id]
			s.sandbox.records++
			if s.sandbox.last != c {
				s.sandbox.last = c
				s.sandbox.chains++
			}
			c.attachments.states = append(c.attachments.states, s)
		}
		slices.SortStableFunc(c.attachments.states, func(a, b *attachmentState) int { return a.depth() - b.depth() })
		r.chains = append(r.chains, c)
	}
}

// restore brings back the parents of the chain, and then its interfaces. Last, it announces their addresses.
func (c *chainRestore) restore(ctx context.Context) error {
	if err := c.restoreParents(ctx); err != nil {
		return err
	}
	c.restoreSandboxes(ctx)
	c.saveIndices(ctx)
	c.awaitCarrier(ctx)
	return nil
}

// restoreListed restores the attachment by its record as it is now: an ADD or a DEL may have changed
// it since the list was read. It returns false if the attachment was detached. What an earlier call has done stays in the outcome.
func (c *chainRestore) restoreListed(s *attachmentState) bool {
	record, err := c.run.node.store.Reload(*s.listed)
	switch {
	case errors.Is(err, checkpoint.ErrNoCheckpoint):
		return false
	case err != nil:
		record = *s.listed
	}
	next := newState(&record)
	next.listed, next.chain, next.sandbox = s.listed, s.chain, s.sandbox
	next.outcome.Steps, next.outcome.ParentReason = s.outcome.Steps, s.outcome.ParentReason
	if err != nil {
		next.outcome.Fail(err)
	} else {
		c.restoreAttachment(record, next)
	}
	c.attachments.change(func() {
		next.outcome.Announced = next.outcome.Announced || s.outcome.Announced
		*s = *next
	})
	return true
}

// restoreAttachment restores one attachment and fills in what became of it.
func (c *chainRestore) restoreAttachment(record checkpoint.Record, s *attachmentState) {
	sandbox, err := c.run.namespaces.open(record.Namespace)
	if err != nil {
		s.outcome.Fail(err)
		if kernel.IsMissing(err) {
			s.missing = err
		}
		return
	}
	defer sandbox.Close()
	w := c.newAttachment(record, sandbox, s)
	switch err = c.findParent(w); {
	case err == nil:
		err = w.execute()
	case w.dryRun:
		_, _ = w.plan() // So the outcome has the interface as it is.
	}
	if err != nil {
		if note, _ := c.run.node.store.LoadMove(record.Attachment); note.State == checkpoint.MoveBegun {
			err = checkpoint.ErrUnfinishedMove
		}
		s.outcome.Fail(err)
	}
	if w.scope == wholeAttachment {
		w.repairAccess(c.run.readNode)
	}
}

func (c *chainRestore) newAttachment(record checkpoint.Record, sandbox *kernel.Namespace, s *attachmentState) *attachmentRestore {
	return &attachmentRestore{
		node: c.run.node, dryRun: c.run.opts.DryRun, scope: c.run.scopes[record.Attachment], devices: c.host.devices, present: c.host.live,
		record: record, sandbox: sandbox, state: s, outcome: &s.outcome,
	}
}

// awaitCarrier waits for carrier, and announces what is owed as soon as there is some. A device that has just been set up has
// carrier a moment later, so the first look reports nothing.
func (c *chainRestore) awaitCarrier(ctx context.Context) {
	start := time.Now()
	for first := true; !c.run.opts.DryRun; first = false {
		lines := c.attachments.announceConnected()
		if len(lines) == 0 || time.Since(start) >= c.run.opts.Wait || ctx.Err() != nil {
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
	dryRun := c.run.opts.DryRun
	if !dryRun && len(c.run.chains) > 1 {
		c.attachments.announceConnected()
	}
	rest := c.attachments.pending()
	for _, s := range rest {
		if o := &s.outcome; ctx.Err() != nil && !dryRun {
			_, cause := o.CutOff()
			o.Reason = joinReasons(o.Reason, "interrupted: "+cause)
		}
	}
	c.report.problem(cutOffLines(rest)...)
	if c.attachments.failed != nil {
		c.report.problem(printable.Joined(c.attachments.failed))
	}
}

// setWaiting reports what all chains of the run wait for. reasons are those of this chain: without reasons, the chain
// waits no longer.
func (c *chainRestore) setWaiting(reasons []string) {
	r := c.run
	if r.opts.Waiting == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.waitingFor = reasons
	if len(reasons) == 0 {
		return
	}
	var list []string
	for _, chain := range r.chains {
		addNew(&list, chain.waitingFor...)
	}
	r.opts.Waiting(list)
}

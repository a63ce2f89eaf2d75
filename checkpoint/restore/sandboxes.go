package restore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/netstate"
)

// busyTimeout is how long a restore that nobody asked for waits for a sandbox on which somebody else is at work. It comes
// again, and until it ends nobody is told of the others. Every restore waits as long to write new indices.
const busyTimeout = 2 * time.Second

// sandboxRestore is a sandbox of the run. Several chains can have attachments in it.
type sandboxRestore struct {
	// chains is the number of those chains, last is the last of them, and records is the number of their records.
	chains, records int
	last            *chainRestore
	// restored are the attachments that were restored so far. mu guards it: a dry run takes no other lock.
	mu       sync.Mutex
	restored []*attachmentState
}

// restoreSandboxes restores the chain's attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (c *chainRestore) restoreSandboxes(ctx context.Context) {
	states := c.attachments.states
	var targets []checkpoint.Record
	for _, s := range states {
		targets = append(targets, *s.listed)
	}
	errs := c.run.runner.Run(ctx, targets, func(i int) error {
		c.restoreInSandbox(states[i])
		return nil
	})
	for i, err := range errs {
		if err != nil {
			states[i].outcome.Fail(err)
		}
	}
	c.attachments.states = slices.DeleteFunc(states, func(s *attachmentState) bool { return s.detached })
}

// restoreInSandbox restores the attachment, and then again what depends on it: an attachment of the sandbox that failed before, and one
// that was done before this one was changed. The caller holds the sandbox's lock.
func (c *chainRestore) restoreInSandbox(s *attachmentState) {
	s.sandbox.mu.Lock()
	defer s.sandbox.mu.Unlock()
	if s.detached = !c.restoreListed(s); s.detached {
		return
	}
	changed := len(s.outcome.Steps) > 0 && !c.run.opts.DryRun
	for _, earlier := range s.sandbox.restored {
		if o := &earlier.outcome; hasDependentRoutes(o.Interface) && (o.State == change.Failed || changed) {
			earlier.chain.restoreListed(earlier)
		}
	}
	s.sandbox.restored = append(s.sandbox.restored, s)
}

// depth orders the attachments of a sandbox: those on a device inside of it come last. Before them come records without an index, so that
// they do not take an index that another record has.
func (s *attachmentState) depth() int {
	switch i := &s.listed.Interface; {
	case i.ParentsInSandbox:
		return 1 + len(i.Parents)
	case i.Link.Index == 0:
		return 1
	}
	return 0
}

// hasDependentRoutes says that routes of the interface depend on other interfaces.
func hasDependentRoutes(i netstate.Interface) bool {
	return slices.ContainsFunc(i.Routes, func(route netstate.Route) bool { return isDependent(route, i) })
}

// isDependent says that the route of the interface depends on other interfaces: it goes through those, or has one of their addresses as
// source.
func isDependent(route netstate.Route, i netstate.Interface) bool {
	return len(route.Devices()) > 0 || route.Source.IsValid() &&
		!slices.ContainsFunc(i.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr() == route.Source })
}

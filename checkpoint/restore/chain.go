package restore

import (
	"context"
	"slices"
	"sync"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// chain is the restore of one Chain. The chains of one run are restored at the same time.
type chain struct {
	*run
	// place is the chain's place in the run.
	place   int
	records []checkpoint.Record
	// groups are the records by their sandboxes.
	groups [][]checkpoint.Record
	// plan is for the parents in the host. devices are the host's devices after the plan; a dry run computes them.
	// after is a plan on those devices: it finds what is still missing.
	plan    *ParentPlan
	devices netstate.Devices
	after   sharedPlan
	// seen are the host's devices at the last look.
	seen netstate.Devices
	// unnamed are the indices of devices that udev had not finished with at the end of the wait.
	unnamed []int
	// inPlace says whether the NICs that belong in sandboxes are there.
	inPlace map[attachment.Key]bool
	// outcomes are the outcomes of the records. When all are there, outcomesMu guards what they point to: another chain
	// may restore an attachment of a shared sandbox again.
	outcomes   []*Outcome
	outcomesMu sync.Mutex
	// unannounced is the reason why announcements failed at the last try.
	unannounced error
	// report has everything else that the run reports about the chain.
	report Report
}

// newChains makes the run's chains of the records.
func (r *run) newChains(records []checkpoint.Record) {
	chains := Chains(records, r.Mapped)
	seen := map[string]int{}
	for i, c := range chains {
		groups := bySandbox(c.Records)
		r.chains = append(r.chains, &chain{run: r, place: i, records: c.Records, groups: groups, inPlace: map[attachment.Key]bool{}, report: Report{Parents: []StepResult{}}})
		for _, group := range groups {
			id := group[0].Attachment.ContainerID
			if seen[id]++; seen[id] == 2 {
				r.shared[id] = &sharedSandbox{}
			}
			r.several[id] = r.several[id] || len(group) > 1 || r.shared[id] != nil
			r.groups++
		}
	}
	r.waitingFor = make([][]string, len(chains))
}

// restore brings back the parents of the chain, and then its interfaces. Last, it announces their addresses.
func (c *chain) restore(ctx context.Context) error {
	if err := c.restoreParents(ctx); err != nil {
		return err
	}
	c.outcomes = c.sandboxes(ctx)
	c.awaitCarrier(ctx)
	return nil
}

// sharedSandbox is a sandbox whose attachments are in several chains of the run.
type sharedSandbox struct {
	// The chain that works on the sandbox holds mu. The sandbox's lock in the store would do too, but has a limited
	// wait of its own.
	mu sync.Mutex
	// done are the attachments that earlier chains of the run have restored.
	done []doneByChain
}

type doneByChain struct {
	chain   *chain
	record  checkpoint.Record
	outcome *Outcome
}

// leaningOn restores again what earlier chains have restored in the sandbox, if it depends on interfaces that this
// chain has now changed. Then it adds this chain's attachments to done. The caller holds the sandbox's lock.
func (s *sharedSandbox) leaningOn(c *chain, records []checkpoint.Record, outcomes []*Outcome) {
	changed := slices.ContainsFunc(outcomes, func(o *Outcome) bool { return len(o.Steps) > 0 && !c.DryRun })
	for _, d := range s.done {
		if !leans(d.outcome.Interface) || !changed {
			continue
		}
		if now := d.chain.current(d.record); now != nil {
			d.chain.outcomesMu.Lock()
			now = now.after(d.outcome)
			c.rememberIndices([]*Outcome{now})
			*d.outcome = *now
			d.chain.outcomesMu.Unlock()
		}
	}
	for _, o := range outcomes {
		i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment == o.Attachment })
		s.done = append(s.done, doneByChain{chain: c, record: records[i], outcome: o})
	}
}

// waitFor reports what all chains of the run wait for. reasons are those of this chain: without reasons, the chain
// waits no longer.
func (c *chain) waitFor(reasons []string) {
	if c.Waiting == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitingFor[c.place] = reasons
	if len(reasons) == 0 {
		return
	}
	var all []string
	for _, one := range c.waitingFor {
		for _, reason := range one {
			all = appendNew(all, reason)
		}
	}
	c.Waiting(all)
}

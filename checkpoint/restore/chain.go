package restore

import (
	"context"
	"sync"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// chainRestore is the restore of one Chain. The chains of one run are restored at the same time.
type chainRestore struct {
	run *restoreRun
	// position is the chain's place in the run.
	position int
	records  []checkpoint.Record
	// actions are the restores of its sandboxes.
	actions []*sandboxAction
	// plan is for the parents in the host. devices are the host's devices after the plan; a dry run computes them.
	// afterPlan is a plan on those devices: it finds what is still missing.
	plan      *ParentPlan
	devices   netstate.Devices
	afterPlan *ParentPlan
	// lastDevices are the host's devices at the last look.
	lastDevices netstate.Devices
	// nicInSandbox says whether the NICs that belong in sandboxes are there.
	nicInSandbox map[attachment.Key]bool
	// outcomes are the outcomes of the records. When all are there, mu guards what they point to: another chain may restore an
	// attachment of a shared sandbox again. While sandboxes are restored, mu guards afterPlan.
	outcomes []*Outcome
	mu       sync.Mutex
	// unannounced is the reason why announcements failed at the last try.
	unannounced error
	// report has everything else that the run reports about the chain.
	report Report
}

// newChains makes the run's chains of the records.
func (r *restoreRun) newChains(records []checkpoint.Record) {
	chains, sandboxes := Chains(records, r.Mapped), 0
	for i, c := range chains {
		actions := bySandbox(c.Records)
		sandboxes += len(actions)
		r.chains = append(r.chains, &chainRestore{run: r, position: i, records: c.Records, actions: actions, nicInSandbox: map[attachment.Key]bool{}, report: Report{Parents: []StepResult{}}})
		for _, action := range actions {
			id := action.records[0].Attachment.ContainerID
			if r.sandboxes[id] == nil {
				r.sandboxes[id] = &sandboxRestore{}
			}
			r.sandboxes[id].chains++
			r.sandboxes[id].records += len(action.records)
		}
	}
	r.runner.Expect(sandboxes)
	r.waitingFor = make([][]string, len(chains))
}

// restore brings back the parents of the chain, and then its interfaces. Last, it announces their addresses.
func (c *chainRestore) restore(ctx context.Context) error {
	if err := c.restoreParents(ctx); err != nil {
		return err
	}
	c.outcomes = c.restoreSandboxes(ctx)
	c.saveIndices(ctx)
	c.awaitCarrier(ctx)
	return nil
}

// setWaiting reports what all chains of the run wait for. reasons are those of this chain: without reasons, the chain
// waits no longer.
func (c *chainRestore) setWaiting(reasons []string) {
	if c.run.Waiting == nil {
		return
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.waitingFor[c.position] = reasons
	if len(reasons) == 0 {
		return
	}
	var list []string
	for _, chainReasons := range c.run.waitingFor {
		for _, reason := range chainReasons {
			list = appendNew(list, reason)
		}
	}
	c.run.Waiting(list)
}

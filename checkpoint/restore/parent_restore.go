package restore

import (
	"context"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// parentRestore brings back parents in one namespace: those of a chain or of a move in the host, or those of an interface in its sandbox.
type parentRestore struct {
	namespace *kernel.Namespace
	// recorded are all the NICs that records name.
	recorded []netstate.Member
	options  ParentOptions
	// chains are the parents to bring back. Their order is that of the plan.
	chains [][]netstate.Device
	dryRun bool
	// live are the devices at the last look. plan is the last plan that was to be carried out. steps are those that were carried out, of
	// earlier plans too.
	live  netstate.Devices
	plan  *ParentPlan
	steps []Step
	// devices are the devices after the steps; a dry run computes them. after is a plan on them: it finds what is still missing.
	devices netstate.Devices
	after   *ParentPlan
}

// look plans on the devices as they are now. Without a call of apply, nothing of the plan is done.
func (p *parentRestore) look() (err error) {
	if p.live, err = p.namespace.Devices(); err == nil {
		p.plan = p.planOn(p.live)
		p.devices, p.after = p.live, p.plan
	}
	return err
}

func (p *parentRestore) planOn(devices netstate.Devices) *ParentPlan {
	plan := NewParentPlan(devices, p.recorded, p.options)
	for _, chain := range p.chains {
		plan.chain(chain)
	}
	return plan
}

// apply carries the plan out. If something has changed since the plan was made, it plans again, a few times at most.
func (p *parentRestore) apply() error {
	for pass := 1; len(p.plan.steps) > 0; pass++ {
		planned := p.plan
		finished := runSteps(p.namespace, planned.steps, p.dryRun, pass < maxPasses)
		p.steps = append(p.steps, finished...)
		if p.dryRun {
			p.devices = planned.devices
			p.after = p.planOn(p.devices)
			return nil
		}
		if err := p.look(); err != nil {
			return err
		}
		if len(finished) == len(planned.steps) {
			p.plan = planned
			return nil
		}
	}
	return nil
}

// ReadyParents makes chains of parents in the host ready to build on: it creates VLAN devices, makes NICs members of
// their bonds again, and sets devices up. It is what a restore does for the parents of its records, for parents that
// need not be in a record. records are all that are known: none of their NICs is taken for another. It waits for
// no device, and at most flock.DefaultTimeout for a restore that changes the host's devices. It returns what
// became of each chain, and the steps. A dry run changes nothing.
func ReadyParents(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, records []checkpoint.Record,
	chains [][]netstate.Device, dryRun bool,
) (ready []ReadyChain, steps []Step, err error) {
	if !dryRun {
		unlock, err := store.LockNode(ctx, checkpoint.HostLock)
		if err != nil {
			return nil, nil, err
		}
		defer unlock()
	}
	p := parentRestore{namespace: host, recorded: NICs(records), chains: chains, dryRun: dryRun}
	for _, chain := range chains {
		p.recorded = appendKnown(p.recorded, hardwareOf(chain)...)
	}
	if err = p.look(); err == nil {
		err = p.apply()
	}
	if err != nil {
		return nil, p.steps, err
	}
	for _, chain := range chains {
		r := p.after.chain(chain)
		if missing := p.after.stepsConcerning(r.Parent.Index, p.after.steps); r.Problem == nil && len(missing) > 0 {
			r.Problem = problemf("%s", stepReasons(missing))
		}
		ready = append(ready, r)
	}
	return ready, p.steps, nil
}

// failureReasons says why the steps in the host were not done: with the kernel's error if there was one.
func failureReasons(missing, carriedOut []Step) string {
	var texts []string
	for _, step := range missing {
		text := stepReasons([]Step{step})
		for _, s := range carriedOut {
			if s.Error != "" && s.Device == step.Device && s.Action == step.Action {
				text = s.Error
			}
		}
		addNew(&texts, text)
	}
	return strings.Join(texts, "; ")
}

package restore

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Ready says what became of a chain of parents that Ready was asked for.
type Ready struct {
	// Parent is the device to build on. A dry run has a negative index for one that it would make.
	Parent netstate.LiveDevice
	// Now is the chain with the names and the hardware that were found.
	Now []netstate.Device
	// Problem is why nothing can be built on it, nil if something can.
	Problem *Problem
}

// ReadyParents makes chains of parents in the host ready to build on: it creates VLAN devices, makes NICs members of
// their bonds again, and sets devices up. It is what a restore does for the parents of its records, for parents that
// need not be in a record. records are all that are known: none of their NICs is taken for another. It waits for
// no device, and at most flock.Patience for a restore that changes the host's devices. It returns what
// became of each chain, and the steps. A dry run changes nothing.
func ReadyParents(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, records []checkpoint.Record,
	chains [][]netstate.Device, dryRun bool,
) ([]Ready, []StepResult, error) {
	if !dryRun {
		patient, cancel := context.WithTimeout(ctx, flock.Patience)
		defer cancel()
		unlock, err := store.LockHost(patient)
		if err != nil {
			return nil, nil, err
		}
		defer unlock()
	}
	recorded := recordedNICs(records)
	for _, chain := range chains {
		recorded = appendKnown(recorded, hardwareOf(chain)...)
	}
	var done []StepResult
	for pass := 1; ; pass++ {
		devices, err := host.Devices()
		if err != nil {
			return nil, done, err
		}
		plan := NewParentPlan(devices, recorded, ParentOptions{})
		ready, steps := readyBy(plan, chains, dryRun || pass <= passes), plan.Steps()
		if len(steps) == 0 || dryRun || pass > passes {
			return ready, append(done, leftOver(steps, dryRun)...), nil
		}
		done = append(done, carryOut(host, steps)...)
	}
}

// readyBy returns what the plan says of the chains. Without further steps, a chain that needs some is not ready.
func readyBy(plan *ParentPlan, chains [][]netstate.Device, further bool) (ready []Ready) {
	for _, chain := range chains {
		r := plan.chain(chain)
		if steps := plan.stepsBelow(chain); !further && len(steps) > 0 {
			r.broken = &Problem{Reason: reasons(steps)}
		}
		ready = append(ready, Ready{Parent: r.parent, Now: r.now, Problem: r.broken})
	}
	return ready
}

// leftOver are the steps that a dry run does not do, and those that could not be done.
func leftOver(steps []Step, dryRun bool) (all []StepResult) {
	for _, step := range steps {
		result := StepResult{Step: step}
		if !dryRun {
			result.Error = "not done"
		}
		all = append(all, result)
	}
	return all
}

// carryOut does the steps, and stops at one whose devices have changed: the next plan knows better.
func carryOut(host *kernel.Namespace, steps []Step) (done []StepResult) {
	hands := newHands(host)
	for _, step := range steps {
		err := hands.do(step)
		if errors.Is(err, errChanged) {
			return done
		}
		result := StepResult{Step: step}
		if err != nil {
			result.Error = err.Error()
		}
		done = append(done, result)
	}
	return done
}

package restore

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ReadyChain says what became of a chain of parents that ReadyParents was asked for.
type ReadyChain struct {
	// Parent is the device to build on. A dry run has a negative index for one that it would make.
	Parent netstate.LiveDevice
	// Found is the chain with the names and the hardware that were found.
	Found []netstate.Device
	// Problem is why nothing can be built on it, nil if something can.
	Problem *Problem
}

// ReadyParents makes chains of parents in the host ready to build on: it creates VLAN devices, makes NICs members of
// their bonds again, and sets devices up. It is what a restore does for the parents of its records, for parents that
// need not be in a record. records are all that are known: none of their NICs is taken for another. It waits for
// no device, and at most flock.DefaultTimeout for a restore that changes the host's devices. It returns what
// became of each chain, and the steps. A dry run changes nothing.
func ReadyParents(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, records []checkpoint.Record,
	chains [][]netstate.Device, dryRun bool,
) ([]ReadyChain, []StepResult, error) {
	if !dryRun {
		unlock, err := store.LockHost(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer unlock()
	}
	recorded := NICs(records)
	for _, chain := range chains {
		recorded = appendKnown(recorded, hardwareOf(chain)...)
	}
	var results []StepResult
	for pass := 1; ; pass++ {
		devices, err := host.Devices()
		if err != nil {
			return nil, results, err
		}
		plan := NewParentPlan(devices, recorded, ParentOptions{})
		ready, steps := readyBy(plan, chains, dryRun || pass <= maxPasses), plan.Steps()
		if pass > maxPasses {
			return ready, results, nil
		}
		results = append(results, runSteps(host, steps, dryRun, true)...)
		if len(steps) == 0 || dryRun {
			return ready, results, nil
		}
	}
}

// readyBy returns what the plan says of the chains. Without further steps, a chain that needs some is not ready.
func readyBy(plan *ParentPlan, chains [][]netstate.Device, further bool) (ready []ReadyChain) {
	for _, chain := range chains {
		r := plan.chain(chain)
		if steps := plan.stepsBelow(chain); !further && len(steps) > 0 {
			r.blocker = &Problem{Reason: stepReasons(steps)}
		}
		ready = append(ready, ReadyChain{Parent: r.parent, Found: r.found, Problem: r.blocker})
	}
	return ready
}

// runSteps carries out steps on devices of the host. With giveUp, it stops at a step whose devices have changed: the next plan knows
// better. It returns what became of the steps that it has finished with. A dry run does none of them.
func runSteps(host *kernel.Namespace, steps []Step, dryRun, giveUp bool) (results []StepResult) {
	runner := newStepRunner(host)
	for _, step := range steps {
		result := StepResult{Step: step}
		if !dryRun {
			err := runner.run(step)
			if giveUp && errors.Is(err, errChanged) {
				break
			}
			if err != nil {
				result.Error = err.Error()
			}
		}
		results = append(results, result)
	}
	return results
}

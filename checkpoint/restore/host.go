package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// restoreParents plans again and again, until no device is missing that may still appear and udev is
// done with those that are there, or until the time has passed. Then it brings back the devices between the bases and the
// interfaces.
func (c *chainRestore) restoreParents(ctx context.Context) error {
	for start := time.Now(); ; {
		wait, err := c.planHost(ctx, start)
		if err == nil && !wait {
			wait, err = c.restoreHostLocked(ctx, start)
		}
		if err != nil || !wait {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// restoreHostLocked changes the host's devices, under the lock that keeps other restores off. It changes nothing
// if there is something to wait for again: nobody waits under the lock.
func (c *chainRestore) restoreHostLocked(ctx context.Context, start time.Time) (wait bool, err error) {
	if !c.run.DryRun && (len(c.plan.Steps()) > 0 || c.run.HostAddresses) {
		if ctx.Err() != nil {
			c.report.problem("interrupted before anything was done to the host's devices")
			return false, c.useCurrentHost()
		}
		unlock, err := c.run.Store.LockHost(ctx)
		if err != nil {
			c.report.problem(printable.Joined(err) + ": nothing is done to the host's devices")
			return false, c.useCurrentHost()
		}
		defer unlock()
		if wait, err := c.planHost(ctx, start); wait || err != nil {
			return wait, err
		}
		c.noteOwedByParents()
	}
	if err := c.applyPlan(); err != nil {
		return false, err
	}
	c.replan()
	return false, c.restoreCarried()
}

// useCurrentHost goes on with the devices that are there. Sandboxes on them can be restored.
func (c *chainRestore) useCurrentHost() (err error) {
	if c.devices, err = c.run.host.Devices(); err == nil {
		c.lastDevices = c.devices
		c.replan()
	}
	return err
}

// replan plans again on the devices as they are after the first plan. It reports the steps that
// were not done.
func (c *chainRestore) replan() {
	c.afterPlan = NewParentPlan(c.devices, c.run.recorded, ParentOptions{Mapped: c.run.Mapped, allowed: c.run.allowed})
	for i := range c.records {
		if record := &c.records[i]; onHost(record) {
			c.afterPlan.chain(record.Interface.Parents)
		}
	}
	for _, text := range shadowedVLANs(c.devices, hostNames(c.records)) {
		c.report.problem(text)
	}
	for _, step := range c.afterPlan.Steps() {
		c.report.problem(fmt.Sprintf("not done: %s: %s", step, step.Reason))
	}
}

// shadowedVLANs is a pure function. It names each VLAN device on a member of a bond that has the same
// VLAN: the kernel gives it the frames before the bond sees them. used has the names of the devices that
// records need; one of the two is among them.
func shadowedVLANs(devices netstate.Devices, used map[string]bool) (texts []string) {
	for _, d := range devices {
		below, ok := devices.ByIndex(d.ParentIndex)
		if d.VLAN == nil || !ok {
			continue
		}
		over, ok := devices.AggregateOf(below)
		if !ok {
			continue
		}
		if hidden, ok := devices.VLANOn(over.Index, *d.VLAN); ok && (used[d.Name] || used[hidden.Name]) {
			texts = append(texts, fmt.Sprintf("%s takes the frames that %s should get, as %s is a member of %s", d.Name, hidden.Name, below.Name, over.Name))
		}
	}
	return texts
}

// applyPlan carries the plan out. If something has changed since the plan was made, it plans
// again, a few times at most.
func (c *chainRestore) applyPlan() error {
	for pass := 1; ; pass++ {
		steps := c.plan.Steps()
		count := c.applyHostSteps(steps, pass < maxPasses)
		c.devices = c.plan.devices
		if c.run.DryRun || len(steps) == 0 {
			return nil
		}
		devices, err := c.run.host.Devices()
		if err != nil {
			return err
		}
		c.devices, c.lastDevices = devices, devices
		if count == len(steps) {
			return nil
		}
		before := slices.Concat(c.plan.earlierSteps, steps[:count])
		c.plan = NewParentPlan(devices, c.run.recorded, c.run.ParentOptions)
		c.plan.earlierSteps = before
		c.reportParentStatus(c.parentStatus())
	}
}

// applyHostSteps runs steps on devices of the host, and reports them. It returns how many it has finished with.
func (c *chainRestore) applyHostSteps(steps []Step, giveUp bool) int {
	results := runSteps(c.run.host, steps, c.run.DryRun, giveUp)
	for _, r := range results {
		if r.Error != "" {
			c.report.problem(r.Error)
		}
	}
	c.report.Parents = append(c.report.Parents, results...)
	return len(results)
}

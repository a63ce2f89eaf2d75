package move

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// patience is how long to wait for a lock.
const patience = flock.Patience

// target is a chain of parents that attachments move to.
type target struct {
	chain []netstate.Device
	restore.Ready
	jobs []*job
}

// targets makes the new parents ready, and checks that the pods can reach their gateways there.
func (r *run) targets(ctx context.Context) error {
	targets := grouped(r.movable())
	deadline := time.Now().Add(r.Wait)
	for {
		waiting, err := r.ready(ctx, targets)
		if err != nil {
			return err
		}
		if !waiting || r.DryRun || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		pause(ctx)
	}
	for _, t := range targets {
		if t.Problem != nil {
			t.refuse(t.Problem.Reason)
			continue
		}
		r.reachable(ctx, t, deadline)
	}
	return nil
}

// grouped returns the chains that the jobs go to, each once.
func grouped(jobs []*job) (targets []*target) {
	known := map[string]*target{}
	for _, j := range jobs {
		key := keyOf(j.to)
		if known[key] == nil {
			known[key] = &target{chain: j.to}
			targets = append(targets, known[key])
		}
		j.target = known[key]
		j.target.jobs = append(j.target.jobs, j)
	}
	return targets
}

// ready makes the chains ready. waiting says that a missing device may still appear.
func (r *run) ready(ctx context.Context, targets []*target) (waiting bool, err error) {
	var chains [][]netstate.Device
	for _, t := range targets {
		chains = append(chains, t.chain)
	}
	ready, steps, err := restore.ReadyParents(ctx, r.Store, r.host, r.all, chains, r.DryRun)
	if err != nil {
		return false, err
	}
	for i, t := range targets {
		t.Ready = ready[i]
		waiting = waiting || t.Problem != nil && t.Problem.Waiting
	}
	for _, s := range steps {
		if s.Action() == restore.CreateVLAN && s.Error == "" && !r.DryRun {
			r.made = append(r.made, s.Device)
		}
	}
	r.report.Steps = append(r.report.Steps, steps...)
	if !r.DryRun {
		r.devices, err = r.host.Devices()
	}
	return waiting, err
}

func (t *target) refuse(why string) {
	for _, j := range t.jobs {
		j.refuse(why)
	}
}

// reachable refuses attachments whose gateway does not answer on the target before the deadline.
func (r *run) reachable(ctx context.Context, t *target, deadline time.Time) {
	if t.Parent.Index <= 0 {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("%s is not there yet: nobody has asked whether the gateways answer on it", t.Parent.Name))
		return
	}
	var ask []netip.Addr
	for _, j := range t.jobs {
		gateways := gatewaysOf(j.record.Interface)
		if len(gateways) == 0 && !r.NoProbe {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf("no gateway of %s is known: nobody has asked whether one answers on %s", podOf(j.record), t.Parent.Name))
		}
		for _, g := range gateways {
			if !r.NoProbe && !slices.Contains(ask, g) {
				ask = append(ask, g)
			}
		}
	}
	left, err := r.silent(ctx, t.Parent.Index, ask, deadline)
	if err != nil {
		t.refuse(printable.Joined(err))
		return
	}
	for _, j := range t.jobs {
		for _, g := range gatewaysOf(j.record.Interface) {
			if slices.Contains(left, g) {
				j.refuse(fmt.Sprintf("its gateway %s does not answer on %s: look whether the switch's port carries the VLAN", g, t.Parent.Name))
			}
		}
	}
}

// probing asks twice before silent checks the deadline. Some hosts answer only the second question.
var probing = kernel.ProbeOptions{Count: 2, Wait: 300 * time.Millisecond}

// silent asks for the addresses until all have answered or the deadline has passed. It asks at least once. It returns
// the addresses that have not answered. Without carrier it returns kernel.ErrNoCarrier.
func (r *run) silent(ctx context.Context, index int, ask []netip.Addr, deadline time.Time) ([]netip.Addr, error) {
	for {
		err := r.carrier(index)
		if err == nil {
			var answers []kernel.Conflict
			answers, err = r.host.Ask(ctx, index, ask, probing)
			ask = slices.DeleteFunc(ask, func(a netip.Addr) bool {
				return slices.ContainsFunc(answers, func(c kernel.Conflict) bool { return c.Address == a })
			})
		}
		if err == nil && len(ask) == 0 || err != nil && !errors.Is(err, kernel.ErrNoCarrier) || time.Now().After(deadline) || ctx.Err() != nil {
			return ask, errors.Join(err, ctx.Err())
		}
		pause(ctx)
	}
}

// carrier returns kernel.ErrNoCarrier if the device has no carrier.
func (r *run) carrier(index int) error {
	device, err := r.host.Device(index)
	if err == nil && !device.Carrier {
		err = fmt.Errorf("%s: %w", device.Name, kernel.ErrNoCarrier)
	}
	return err
}

const pollInterval = 100 * time.Millisecond

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pollInterval):
	}
}

// gatewaysOf is a pure function: it returns the addresses that must answer on another uplink, at most one of each
// family. It prefers the gateway of a default route. Without a gateway, it takes a recorded neighbour.
func gatewaysOf(i netstate.Interface) (all []netip.Addr) {
	for _, is6 := range []bool{false, true} {
		var best netip.Addr
		for _, route := range netstate.InOrder(i.Routes) {
			gateway := route.Gateway
			if len(route.NextHops) > 0 && route.NextHops[0].Device == "" {
				gateway = route.NextHops[0].Gateway
			}
			isDefault := route.Destination.Bits() == 0
			if gateway.IsValid() && gateway.Is6() == is6 && route.Device == "" && (!best.IsValid() || isDefault) {
				best = gateway
			}
			if best.IsValid() && isDefault {
				break
			}
		}
		for _, n := range i.Neighbours {
			if !best.IsValid() && !n.Proxy && n.Address.Is6() == is6 {
				best = n.Address
			}
		}
		if best.IsValid() {
			all = append(all, best)
		}
	}
	return all
}

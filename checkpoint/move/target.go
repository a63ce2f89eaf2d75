package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// prepareTargets makes the new parents ready, and checks that the pods can reach their gateways there.
func (r *moveRun) prepareTargets(ctx context.Context) error {
	jobs := r.jobsThat((*job).isMovable)
	deadline := time.Now().Add(r.Wait)
	var err error
	poll(ctx, deadline, func() (pending bool) {
		pending, err = r.prepareParents(ctx, jobs)
		return err == nil && pending && !r.DryRun
	})
	if err != nil {
		return err
	}
	byParent := map[int][]*job{}
	for _, j := range jobs {
		if problem := j.target.Problem; problem != nil {
			j.refuse(problem.Reason)
			continue
		}
		byParent[j.target.Parent.Index] = append(byParent[j.target.Parent.Index], j)
	}
	for _, index := range slices.Sorted(maps.Keys(byParent)) {
		if err := r.checkGateways(ctx, byParent[index], deadline); err != nil {
			for _, j := range byParent[index] {
				j.refuse(printable.Joined(err))
			}
		}
	}
	return nil
}

// prepareParents makes the new parents ready. waiting says that a missing device may still appear.
func (r *moveRun) prepareParents(ctx context.Context, jobs []*job) (waiting bool, err error) {
	var chains [][]netstate.Device
	for _, j := range jobs {
		chains = append(chains, j.newParents)
	}
	ready, steps, err := restore.ReadyParents(ctx, r.Store, r.host, r.records, chains, r.DryRun)
	if err != nil {
		return false, err
	}
	for i, j := range jobs {
		j.target = ready[i]
		waiting = waiting || j.target.Problem != nil && j.target.Problem.Transient
	}
	for _, s := range steps {
		if s.Action == restore.CreateVLAN && s.Error == "" && !r.DryRun {
			r.createdVLANs = append(r.createdVLANs, s.Device)
		}
	}
	r.report.Steps = append(r.report.Steps, steps...)
	if !r.DryRun {
		r.devices, err = r.host.Devices()
	}
	return waiting, err
}

// checkGateways refuses those of the attachments, which move to one parent, whose gateway does not answer there before the deadline.
func (r *moveRun) checkGateways(ctx context.Context, jobs []*job, deadline time.Time) error {
	parent := jobs[0].target.Parent
	if parent.Index <= 0 {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("%s is not there yet: nobody has asked whether the gateways answer on it", parent.Name))
		return nil
	}
	var ask []netip.Addr
	for _, j := range jobs {
		gateways := gatewaysOf(j.record.Interface)
		if len(gateways) == 0 && !r.NoProbe {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf("no gateway of %s is known: nobody has asked whether one answers on %s", podName(j.record), parent.Name))
		}
		for _, g := range gateways {
			if !r.NoProbe && !slices.Contains(ask, g) {
				ask = append(ask, g)
			}
		}
	}
	unanswered, err := r.probeUnanswered(ctx, parent.Index, ask, deadline)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	for _, j := range jobs {
		for _, g := range gatewaysOf(j.record.Interface) {
			if slices.Contains(unanswered, g) {
				j.refuse(fmt.Sprintf("its gateway %s does not answer on %s: look whether the switch's port carries the VLAN", g, parent.Name))
			}
		}
	}
	return nil
}

// probeOptions asks twice before probeUnanswered checks the deadline. Some hosts answer only the second question.
var probeOptions = kernel.ProbeOptions{Count: 2, Wait: 300 * time.Millisecond}

// probeUnanswered asks for the addresses until all have answered or the deadline has passed. It asks at least once. It returns
// the addresses that have not answered. Without carrier it returns kernel.ErrNoCarrier.
func (r *moveRun) probeUnanswered(ctx context.Context, index int, ask []netip.Addr, deadline time.Time) ([]netip.Addr, error) {
	var err error
	poll(ctx, deadline, func() (pending bool) {
		if err = r.checkCarrier(index); err == nil {
			var solicitations []kernel.Solicitation
			for _, a := range ask {
				solicitations = append(solicitations, kernel.Solicitation{Target: a}) // The host need not have an address there.
			}
			var answered []netip.Addr
			answered, err = r.host.Resolve(ctx, index, solicitations, probeOptions)
			ask = slices.DeleteFunc(ask, func(a netip.Addr) bool { return slices.Contains(answered, a) })
		}
		return err == nil && len(ask) > 0 || errors.Is(err, kernel.ErrNoCarrier)
	})
	return ask, err
}

// checkCarrier returns kernel.ErrNoCarrier if the device has no carrier.
func (r *moveRun) checkCarrier(index int) error {
	device, err := r.host.Device(index)
	if err == nil && !device.Carrier {
		err = fmt.Errorf("%s: %w", device.Name, kernel.ErrNoCarrier)
	}
	return err
}

// gatewaysOf is a pure function: it returns the addresses that must answer on another uplink, at most one of each
// family. It prefers the gateway of a default route. Without a gateway, it takes a recorded neighbour.
func gatewaysOf(i netstate.Interface) (gateways []netip.Addr) {
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
			gateways = append(gateways, best)
		}
	}
	return gateways
}

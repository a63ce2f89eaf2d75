package guard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/wait"
)

// gatewayQueries returns the questions that the pod's interface asks to find its routers.
func gatewayQueries(i netstate.Interface) (queries []kernel.Solicitation) {
	add := func(gateway netip.Addr, device string) {
		if !gateway.IsValid() || device != "" {
			return // This route is for another interface.
		}
		if source, ok := sourceAddress(gateway, i.Addresses); ok {
			if q := (kernel.Solicitation{Source: source, Target: gateway.WithZone("")}); !slices.Contains(queries, q) {
				queries = append(queries, q)
			}
		}
	}
	for _, r := range i.Routes {
		add(r.Gateway, r.Device)
		for _, hop := range r.NextHops {
			add(hop.Gateway, hop.Device)
		}
	}
	return queries
}

// sourceAddress returns the pod's address that asks for the gateway: one in the gateway's network, else the first one of
// its family.
func sourceAddress(gateway netip.Addr, addresses []netstate.Address) (source netip.Addr, ok bool) {
	for _, a := range addresses {
		address := a.Prefix.Addr()
		switch {
		case address.Is4() != gateway.Is4():
		case a.Prefix.Contains(gateway.WithZone("")):
			return address, true
		case !ok:
			source, ok = address, true
		}
	}
	return source, ok
}

// maxProbes is how many gateways are asked at once.
const maxProbes = 64

// answeringGateways returns the gateways that answer their pods now. If nobody can look into a pod, its gateways do not count
// as answering.
func answeringGateways(ctx context.Context, store *checkpoint.Store, gateways []Gateway, opts kernel.ProbeOptions) (answering []Gateway) {
	answers := make([]bool, len(gateways))
	inparallel.Do(maxProbes, len(gateways), func(i int) { answers[i] = gateways[i].answers(ctx, store, opts) })
	for i, gateway := range gateways {
		if answers[i] {
			answering = append(answering, gateway)
		}
	}
	return answering
}

// answers asks for the gateway from inside the pod's namespace, if the namespace is still the recorded one.
func (g Gateway) answers(ctx context.Context, store *checkpoint.Store, opts kernel.ProbeOptions) bool {
	record, err := store.Load(g.Attachment.ContainerID, g.Attachment.IfName)
	if err != nil {
		return false
	}
	sandbox, err := kernel.OpenSame(record.Namespace)
	if err != nil {
		return false
	}
	defer sandbox.Close()
	name, err := sandbox.CurrentName(record.Interface.Link)
	if err != nil {
		return false
	}
	index, err := sandbox.Index(name)
	if err != nil {
		return false
	}
	for start := time.Now(); ; {
		found, err := sandbox.Resolve(ctx, index, []kernel.Solicitation{g.Solicitation}, opts)
		// The wait for a late carrier is as long as the wait for an answer.
		if !errors.Is(err, kernel.ErrNoCarrier) || time.Since(start) >= time.Duration(opts.Count)*opts.Wait || !wait.Sleep(ctx, opts.Wait) {
			return len(found) > 0
		}
	}
}

// How to ask a gateway. Before the command, each answer should come at once. Afterwards, a switch may need a moment.
var (
	probeBefore = kernel.ProbeOptions{Count: 3, Wait: 300 * time.Millisecond}
	probeAfter  = kernel.ProbeOptions{Count: 10, Wait: time.Second}
)

// gatewaysBefore returns the gateways of the living pods.
func gatewaysBefore(store *checkpoint.Store) (gateways []Gateway, err error) {
	records, _, err := store.List()
	if err != nil {
		return nil, err
	}
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	for _, r := range records {
		if kernel.NotFound(r.Namespace) || r.Interface.ParentsInSandbox {
			continue
		}
		for _, q := range gatewayQueries(r.Interface.Unexpired(uptime)) {
			gateways = append(gateways, Gateway{Attachment: r.Attachment, Pod: r.Pod, Solicitation: q})
		}
	}
	return gateways, nil
}

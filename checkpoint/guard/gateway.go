package guard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// GatewayQuery is an address to ask for, and the pod's address that asks.
type GatewayQuery struct {
	Source netip.Addr `json:"from"`
	Target netip.Addr `json:"of"`
}

// gatewayQueries returns the questions that the pod's interface asks to find its routers.
func gatewayQueries(i netstate.Interface) (queries []GatewayQuery) {
	add := func(gateway netip.Addr, device string) {
		if !gateway.IsValid() || device != "" {
			return // This route is for another interface.
		}
		if source, ok := sourceAddress(gateway, i.Addresses); ok {
			if q := (GatewayQuery{Source: source, Target: gateway.WithZone("")}); !slices.Contains(queries, q) {
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

// maxProbes is how many pods ask at once.
const maxProbes = 32

// answeringGateways returns the gateways that answer their pods now. If nobody can look into a pod, its gateways do not count
// as answering.
func answeringGateways(ctx context.Context, store *checkpoint.Store, gateways []Gateway, opts kernel.ProbeOptions) (answered []Gateway, err error) {
	records, _, err := store.List()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxProbes)
	for _, record := range records {
		var questions []kernel.Solicitation
		mine := slices.DeleteFunc(slices.Clone(gateways), func(g Gateway) bool { return g.Attachment != record.Attachment })
		for _, g := range mine {
			questions = append(questions, kernel.Solicitation(g.GatewayQuery))
		}
		if len(questions) == 0 {
			continue
		}
		group.Go(func() error {
			found, err := probeGateways(ctx, record, questions, opts)
			mu.Lock()
			defer mu.Unlock()
			for _, g := range mine {
				if slices.Contains(found, g.Target) {
					answered = append(answered, g)
				}
			}
			if errors.Is(err, context.Canceled) {
				return err
			}
			return nil // The caller reports a gateway without an answer.
		})
	}
	return answered, group.Wait()
}

// probeGateways asks from inside the record's namespace, if the namespace is still the recorded one.
func probeGateways(ctx context.Context, record checkpoint.Record, questions []kernel.Solicitation, opts kernel.ProbeOptions) ([]netip.Addr, error) {
	sandbox, err := kernel.OpenSame(record.Namespace)
	if err != nil {
		return nil, err
	}
	defer sandbox.Close()
	name, err := sandbox.CurrentName(record.Interface.Link)
	if err != nil {
		return nil, err
	}
	index, err := sandbox.Index(name)
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for start := time.Now(); ; {
		found, err = sandbox.Resolve(ctx, index, questions, opts)
		// The wait for a late carrier is as long as the wait for an answer.
		if !errors.Is(err, kernel.ErrNoCarrier) || time.Since(start) >= time.Duration(opts.Count)*opts.Wait {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(opts.Wait):
		}
	}
}

// How to ask a gateway. Before the command, each answer should come at once. Afterwards, a switch may need a moment.
var (
	probeBefore = kernel.ProbeOptions{Count: 3, Wait: 300 * time.Millisecond}
	probeAfter  = kernel.ProbeOptions{Count: 10, Wait: time.Second}
)

// gatewaysBefore returns all gateways of the living pods, and those of them that answer.
func gatewaysBefore(ctx context.Context, store *checkpoint.Store) (gateways, answered []Gateway, err error) {
	records, _, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	uptime, err := boot.Uptime()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range records {
		if kernel.NotFound(r.Namespace) || r.Interface.ParentsInSandbox {
			continue
		}
		for _, q := range gatewayQueries(r.Interface.Unexpired(uptime)) {
			gateways = append(gateways, Gateway{Attachment: r.Attachment, Pod: r.Pod, GatewayQuery: q})
		}
	}
	answered, err = answeringGateways(ctx, store, gateways, probeBefore)
	return gateways, answered, err
}

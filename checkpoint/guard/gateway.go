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

// Question is an address to ask for, and the pod's address that asks.
type Question struct {
	From netip.Addr `json:"from"`
	Of   netip.Addr `json:"of"`
}

// gatewaysOf returns the questions that the pod's interface asks to find its routers.
func gatewaysOf(i netstate.Interface) (all []Question) {
	add := func(gateway netip.Addr, device string) {
		if !gateway.IsValid() || device != "" {
			return // This route is for another interface.
		}
		if from, ok := sourceFor(gateway, i.Addresses); ok {
			if q := (Question{From: from, Of: gateway.WithZone("")}); !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	for _, r := range i.Routes {
		add(r.Gateway, r.Device)
		for _, hop := range r.NextHops {
			add(hop.Gateway, hop.Device)
		}
	}
	return all
}

// sourceFor returns the pod's address that asks for the gateway: one in the gateway's network, else the first one of
// its family.
func sourceFor(gateway netip.Addr, addresses []netstate.Address) (from netip.Addr, ok bool) {
	for _, a := range addresses {
		own := a.Prefix.Addr()
		switch {
		case own.Is4() != gateway.Is4():
		case a.Prefix.Contains(gateway.WithZone("")):
			return own, true
		case !ok:
			from, ok = own, true
		}
	}
	return from, ok
}

// asking is how many pods ask at once.
const asking = 32

// answering returns the gateways that answer their pods now. If nobody can look into a pod, its gateways do not count
// as answering.
func answering(ctx context.Context, store *checkpoint.Store, all []Gateway, opts kernel.ProbeOptions) (answered []Gateway, err error) {
	records, _, err := store.List()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(asking)
	for _, record := range records {
		var questions []kernel.Question
		mine := slices.DeleteFunc(slices.Clone(all), func(g Gateway) bool { return g.Attachment != record.Attachment })
		for _, g := range mine {
			questions = append(questions, kernel.Question(g.Question))
		}
		if len(questions) == 0 {
			continue
		}
		group.Go(func() error {
			found, err := ask(ctx, record, questions, opts)
			mu.Lock()
			defer mu.Unlock()
			for _, g := range mine {
				if slices.Contains(found, g.Of) {
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

// ask asks from inside the record's namespace, if the namespace is still the recorded one.
func ask(ctx context.Context, record checkpoint.Record, questions []kernel.Question, opts kernel.ProbeOptions) ([]netip.Addr, error) {
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
	askBefore = kernel.ProbeOptions{Count: 3, Wait: 300 * time.Millisecond}
	askAfter  = kernel.ProbeOptions{Count: 10, Wait: time.Second}
)

// gatewaysBefore returns all gateways of the living pods, and those of them that answer.
func gatewaysBefore(ctx context.Context, store *checkpoint.Store) (all, answered []Gateway, err error) {
	records, _, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	now, err := boot.Uptime()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range records {
		if kernel.Gone(r.Namespace) || r.Interface.ParentsInSandbox {
			continue
		}
		for _, q := range gatewaysOf(r.Interface.Unexpired(now)) {
			all = append(all, Gateway{Attachment: r.Attachment, Pod: r.Pod, Question: q})
		}
	}
	answered, err = answering(ctx, store, all, askBefore)
	return all, answered, err
}

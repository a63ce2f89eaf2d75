package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// Solicitation asks for the neighbour that has the address Target. Source is an address of the device that asks, of the same
// family. Without a Source it asks as a probe does, which needs no address.
type Solicitation struct{ Source, Target netip.Addr }

// Resolve asks neighbours on the link of the device with that index, as the kernel does before it sends to them. It
// returns the addresses that answer. It sends p.Count rounds, and waits p.Wait after each. It returns as soon as all
// have answered. It does not change the device or the table of neighbours.
//
// The device must be up. It returns ErrNoDevice if there is no such device, ErrUnsupported for one that
// does not resolve addresses, ErrNoCarrier if nothing can be sent, or the error of ctx.
func (n *Namespace) Resolve(ctx context.Context, index int, solicitations []Solicitation, p ProbeOptions) (answered []netip.Addr, err error) {
	pr := prober{namespace: n, answersOnly: true}
	var targets []netip.Addr
	for _, s := range solicitations {
		if !s.Source.IsValid() {
			s.Source = unspecified(familyOf(s.Target)).Addr()
		}
		if s.Source.Is4() != s.Target.Is4() {
			return nil, fmt.Errorf("address %s cannot be asked for from %s: they are of two families", s.Target, s.Source)
		}
		targets, pr.solicitations = append(targets, s.Target), append(pr.solicitations, s)
	}
	if err := errors.Join(p.validate(targets), ctx.Err()); err != nil || len(targets) == 0 {
		return nil, err
	}
	if pr.link, err = n.resolving(index); err != nil {
		return nil, fmt.Errorf("ask on device %d: %w", index, err)
	}
	conflicts, err := pr.run(ctx, p, 0)
	if err != nil {
		err = fmt.Errorf("ask on %s: %w", pr.link.Name, err)
	}
	for _, c := range conflicts {
		answered = append(answered, c.Address)
	}
	return answered, err
}

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
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
	sources := map[netip.Addr]netip.Addr{}
	var q questions
	for _, s := range solicitations {
		if !s.Source.IsValid() {
			s.Source = unspecified(familyOf(s.Target)).Addr()
		}
		if s.Source.Is4() != s.Target.Is4() {
			return nil, fmt.Errorf("address %s cannot be asked for from %s: they are of two families", s.Target, s.Source)
		}
		if _, twice := sources[s.Target]; !twice {
			q.addresses = append(q.addresses, s.Target)
		}
		sources[s.Target] = s.Source
	}
	if err := errors.Join(p.validate(q.addresses), ctx.Err()); err != nil || len(q.addresses) == 0 {
		return nil, err
	}
	link, err := n.resolving(index)
	if err != nil {
		return nil, fmt.Errorf("ask on device %d: %w", index, err)
	}
	q.ask = func(a netip.Addr) []byte {
		return wire.Solicitation(link.mac, sources[a], a, make([]byte, wire.NonceLen))
	}
	q.parse = func(frame []byte) (wire.Claim, bool) { return wire.ParseSolicited(frame, link.mac) }
	conflicts, err := n.ask(ctx, link, q, p, 0)
	if err != nil {
		err = fmt.Errorf("ask on %s: %w", link.name, err)
	}
	for _, c := range conflicts {
		answered = append(answered, c.Address)
	}
	return answered, err
}

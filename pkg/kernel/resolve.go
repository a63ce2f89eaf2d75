package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
)

// Solicitation asks for the neighbour that has the address Of. From is an address of the device that asks.
// Both are of one family.
type Solicitation struct{ Source, Target netip.Addr }

// Resolve asks neighbours on the link of the device with that index, as the kernel does before it sends to them. It
// returns the addresses that answer. It sends p.Count rounds, and waits p.Wait after each. It returns as soon as all
// have answered. It does not change the device or the table of neighbours.
//
// The device must be up. It returns ErrNoDevice if there is no such device, ErrUnsupported for one that
// does not resolve addresses, ErrNoCarrier if nothing can be sent, or the error of ctx.
func (n *Namespace) Resolve(ctx context.Context, index int, questions []Solicitation, p ProbeOptions) (answered []netip.Addr, err error) {
	sources := map[netip.Addr]netip.Addr{}
	var addresses []netip.Addr
	for _, q := range questions {
		if q.Source.Is4() != q.Target.Is4() {
			return nil, fmt.Errorf("address %s cannot be asked for from %s: they are of two families", q.Target, q.Source)
		}
		if _, twice := sources[q.Target]; !twice {
			addresses = append(addresses, q.Target)
		}
		sources[q.Target] = q.Source
	}
	if err := errors.Join(p.validate(addresses), ctx.Err()); err != nil || len(addresses) == 0 {
		return nil, err
	}
	link, err := n.linkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("ask on device %d: %w", index, err)
	}
	if len(link.mac) != len(wire.AllNodesMAC) || link.flags&unix.IFF_NOARP != 0 {
		return nil, fmt.Errorf("%s, a %s, does not resolve addresses: %w", link.name, link.kindOf(), ErrUnsupported)
	}
	ask := func(a netip.Addr) []byte { return wire.Solicitation(link.mac, sources[a], a) }
	parse := func(frame []byte) (wire.Claim, bool) { return wire.ParseSolicited(frame, link.mac) }
	pr, err := n.newProber(link, addresses, ask, parse)
	if err != nil {
		return nil, err
	}
	defer pr.close()
	if err = n.awaitCarrier(ctx, index, 0); err == nil {
		err = pr.run(ctx, p, func() error { return n.awaitCarrier(ctx, index, 0) })
	}
	if err != nil {
		err = fmt.Errorf("ask on %s: %w", link.name, err)
	}
	for _, c := range pr.conflicts() {
		answered = append(answered, c.Address)
	}
	return answered, err
}

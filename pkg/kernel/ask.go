package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
)

// ProbeUpDevice asks on the link of the device of that index who has the addresses, and returns those that
// somebody has: who answers there can be reached there. The device is up, and stays as it is. It
// needs no address. ProbeUpDevice returns as soon as all addresses have answered, otherwise after p.Count
// times p.Wait. Its errors are those of Probe.
func (n *Namespace) ProbeUpDevice(ctx context.Context, index int, addresses []netip.Addr, p ProbeOptions) (answers []Conflict, err error) {
	if err := errors.Join(p.validate(addresses), ctx.Err()); err != nil || len(addresses) == 0 {
		return nil, err
	}
	link, err := n.linkByIndex(index)
	switch {
	case err != nil:
	case !link.up():
		err = fmt.Errorf("%s is down: %w", link.name, ErrNoCarrier)
	case len(link.mac) != len(wire.AllNodesMAC) || link.flags&unix.IFF_NOARP != 0:
		err = fmt.Errorf("%s, a %s, does not resolve addresses: %w", link.name, link.kindOf(), ErrUnsupported)
	default:
		answers, err = n.probeUp(ctx, link, addresses, p)
	}
	if err != nil {
		return answers, fmt.Errorf("ask on device %d: %w", index, err)
	}
	return answers, nil
}

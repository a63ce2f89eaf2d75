package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// ProbeUpDevice asks on the link of the device of that index who has the addresses, and returns those that
// somebody has: who answers there can be reached there. The device is up, and stays as it is. It
// needs no address. ProbeUpDevice returns as soon as all addresses have answered, otherwise after p.Count
// times p.Wait. Its errors are those of Probe.
func (n *Namespace) ProbeUpDevice(ctx context.Context, index int, addresses []netip.Addr, p ProbeOptions) (answers []Conflict, err error) {
	if err := errors.Join(p.validate(addresses), ctx.Err()); err != nil || len(addresses) == 0 {
		return nil, err
	}
	link, err := n.probeable(index, true)
	if err == nil {
		answers, err = n.probeUp(ctx, link, addresses, p)
	}
	if err != nil {
		return answers, fmt.Errorf("ask on device %d: %w", index, err)
	}
	return answers, nil
}

package ipam

import (
	"context"
	"net/netip"
)

// Detection says how the configuration wants the addresses probed for. nil is not at all.
func (c *Call) Detection() (*Detection, error) {
	n, err := c.readAll()
	return n.detection, err
}

// Conflict records that a host with that MAC has the address that the attachment was
// given. exchanged says whether a repeated Add gives another address in its place, as
// lease.Store.Conflict does.
func (c *Call) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	store, err := c.openStore()
	if err != nil {
		return false, err
	}
	exchanged, err = store.Conflict(ctx, c.key(), address, mac)
	return exchanged, withCode(err)
}

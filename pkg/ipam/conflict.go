package ipam

import (
	"context"
	"net/netip"
)

// Detection says how the configuration wants the addresses probed for, nil for not
// at all. An IPAM plugin can't do it: it runs before the interface can send. So the
// interface plugin does, between Add and the configuration of the interface, and tells
// by Conflict what it found.
func (c *Call) Detection() (*Detection, error) {
	s, err := c.read()
	if err != nil {
		return nil, err
	}
	return s.detection()
}

// Conflict says that a host with that MAC has the address that the attachment was
// given, and returns whether a repeated Add gives another in its place, as
// lease.Store.Conflict does.
func (c *Call) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	store, _, err := c.prepareRelease()
	if err != nil {
		return false, err
	}
	exchanged, err = store.Conflict(ctx, c.key(), address, mac)
	return exchanged, coded(err)
}

package ipam

import (
	"context"
	"net/netip"
)

// Detection says how the configuration wants the addresses probed for. nil is not
// at all. An IPAM plugin can't probe: it runs before the interface can send. The
// interface plugin probes between Add and the configuration of the interface, and
// calls Conflict if it finds a host.
func (c *Call) Detection() (*Detection, error) {
	s, err := c.read()
	if err != nil {
		return nil, err
	}
	if c.migrating {
		return nil, nil
	}
	d, err := s.detection()
	if d == nil && err == nil && c.mustProbe {
		d = &Detection{Probes: defaultProbes, Wait: defaultWait}
	}
	return d, err
}

// Conflict records that a host with that MAC has the address that the attachment was
// given. exchanged says whether a repeated Add gives another address in its place, as
// lease.Store.Conflict does.
func (c *Call) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	store, _, err := c.prepareRelease()
	if err != nil {
		return false, err
	}
	exchanged, err = store.Conflict(ctx, c.key(), address, mac)
	return exchanged, withCode(err)
}

// Migrating says that a pod on another node still uses an address that Add has given: a virtual machine moves from there to this pod.
// Nobody probes for the addresses, and nobody announces them: that pod would lose its connections.
func (c *Call) Migrating() bool { return c.migrating }

package ipam

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// DetectionOf says how the configuration wants the addresses probed for, nil for not
// at all. An IPAM plugin can't do it: it runs before the interface can send. So the
// interface plugin does, between Add and the configuration of the interface, and tells
// by Conflict what it found.
func DetectionOf(config []byte) (*Detection, error) {
	c, err := decode(config)
	if err != nil {
		return nil, err
	}
	return c.IPAM.detection()
}

// Conflict says that a host with that MAC has the address that the attachment was
// given. The address goes into quarantine, and a repeated Add gives another. One that
// was asked for or that is the owner's stays with the attachment: nobody can take its
// place, and the error says so, with types.ErrTryAgainLater.
func Conflict(ctx context.Context, args *skel.CmdArgs, address netip.Addr, mac string) error {
	store, key, err := beginDel(args)
	if err != nil {
		return err
	}
	return coded(store.update(ctx, func(l *leases) error { return l.conflict(key, address, mac) }))
}

func (l *leases) conflict(key attachment.Key, address netip.Addr, mac string) error {
	lease, leased, err := l.get(address)
	if err != nil {
		return err
	}
	if !leased || !lease.HeldBy(key) {
		return fmt.Errorf("%s does not hold %s, which %s has", key, address, mac)
	}
	if lease.ByHand || lease.Origin != InTurn && lease.Origin != LongestReleased {
		return cniplugin.Error(types.ErrTryAgainLater, "%s is in use on the network by %s, and no other address can take its place (%s): end that use", address, mac, lease.Origin)
	}
	lease.State, lease.Conflict, lease.Why = Quarantined, true, "in use by "+mac
	lease.Owner, lease.Origin, lease.ReleasedAt = attachment.Owner{}, "", l.now
	lease.Until = l.now.Add(max(lease.Policy.Quarantine, DefaultQuarantine))
	return l.put(lease)
}

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
// given, and returns whether a repeated Add gives another in its place: the address is
// in quarantine then. It is not for one that was taken over from the pod's sandbox
// before, which may be what answers. One that was asked for or that is the owner's
// can't be exchanged: the error says so, with types.ErrTryAgainLater, and giving it up
// brings it into quarantine too, unless it is reserved.
func Conflict(ctx context.Context, args *skel.CmdArgs, address netip.Addr, mac string) (exchanged bool, err error) {
	store, key, err := beginDel(args)
	if err != nil {
		return false, err
	}
	var refusal error
	err = store.update(ctx, func(l *leases) (err error) {
		exchanged, refusal, err = l.conflict(key, address, mac)
		return err
	})
	if err == nil {
		err = refusal
	}
	return exchanged && err == nil, coded(err)
}

// conflict marks the lease. The refusal to exchange it is not an error of the store.
func (l *leases) conflict(key attachment.Key, address netip.Addr, mac string) (exchanged bool, refusal, err error) {
	lease, leased, err := l.get(address)
	if err != nil {
		return false, nil, err
	}
	if !leased || !lease.HeldBy(key) {
		return false, nil, fmt.Errorf("%s does not hold %s, which %s has", key, address, mac)
	}
	if lease.Origin == TakenOver {
		return false, nil, nil
	}
	lease.Conflict, lease.Why = true, "in use by "+mac
	if lease.ByHand || lease.Origin != InTurn && lease.Origin != LongestReleased {
		refusal = cniplugin.Error(types.ErrTryAgainLater,
			"%s is in use on the network by %s, and no other address can take its place (%s): end that use", address, mac, lease.Origin)
		return false, refusal, l.put(lease)
	}
	lease.Owner = attachment.Owner{}
	left, _ := lease.GivenUp(lease.Why, l.now)
	return true, nil, l.put(left)
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrInUse says that another host has an address that no other can take the place of.
var ErrInUse = errors.New("is in use on the network")

// Conflict says that a host with that MAC has the address that the attachment was
// given, and returns whether a repeated Allocate gives another in its place: the address is
// in quarantine then. It is not for one that was taken over from the owner's sandbox
// before, which may be what answers. ErrInUse: it was asked for or is the owner's, so that
// it can't be exchanged; given up it goes into quarantine too, unless it is reserved.
func (s *Store) Conflict(ctx context.Context, a attachment.Key, address netip.Addr, mac string) (exchanged bool, err error) {
	var refusal error
	err = s.change(ctx, func(l *leases) (err error) {
		exchanged, refusal, err = l.conflict(a, address, mac)
		return err
	})
	if err == nil {
		err = refusal
	}
	return exchanged && err == nil, err
}

// conflict marks the lease. The refusal to exchange it is not an error of the store.
func (l *leases) conflict(a attachment.Key, address netip.Addr, mac string) (exchanged bool, refusal, err error) {
	lease, leased, err := l.get(address)
	if err != nil {
		return false, nil, err
	}
	h, holds := lease.Holder(a)
	if !leased || !holds {
		return false, nil, fmt.Errorf("%s does not hold %s, which %s has", a, address, mac)
	}
	if len(lease.Holders) > 1 || h.Origin == TakenOver {
		return false, nil, errUnchanged
	}
	lease.Conflict, lease.Why = true, "in use by "+mac
	event := Event{What: InConflict, Why: lease.Why}
	if lease.byHand(l.now) || !slices.Contains([]Origin{InTurn, LongestReleased}, h.Origin) {
		refusal = fmt.Errorf("%s %w by %s, and no other address can take its place (%s): end that use", address, ErrInUse, mac, h.Origin)
		event.Then = Held
		l.note(event.of(lease, h))
		return false, refusal, l.put(lease)
	}
	lease.Owner = attachment.Owner{}
	left, _ := lease.GivenUp(lease.Why, l.now)
	event.Then = left.State
	l.note(event.of(lease, h))
	return true, nil, l.put(left)
}

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrInUse says that another host uses an address, and that no other address can replace it.
var ErrInUse = errors.New("is in use on the network")

// Conflict records that a host with that MAC uses the address that the attachment was given. It returns
// whether a repeated Allocate gives another address instead: this one is in quarantine then. Conflict does
// nothing about an address that was taken over from the owner's earlier sandbox, because that sandbox may
// be what answers. ErrInUse: the address was asked for, or is the owner's, so that no other can replace
// it. It goes into quarantine when it is given up, unless it is reserved.
func (s *Store) Conflict(ctx context.Context, a attachment.Key, address netip.Addr, mac string) (exchanged bool, err error) {
	var refusal error
	err = s.change(ctx, func(l *leaseTx) error {
		lease, err := l.get(address)
		if err != nil {
			return err
		}
		h, holds := lease.Holder(a)
		if !holds {
			return fmt.Errorf("%s does not hold %s, which %s has", a, address, mac)
		}
		if len(lease.Holders) > 1 || h.Origin == TakenOver {
			return errUnchanged
		}
		lease.Conflict, lease.Reason = true, "in use by "+mac
		exchanged = !lease.ReservedByHandAt(l.instant) && (h.Origin == InTurn || h.Origin == LongestReleased)
		remaining := lease
		if exchanged {
			lease.Owner = attachment.Owner{}
			remaining = lease.GivenUp(lease.Reason, l.instant)
		} else {
			refusal = fmt.Errorf("%s %w by %s, and no other address can take its place (%s): end that use", address, ErrInUse, mac, h.Origin)
		}
		l.addEvent(Event{Type: InConflict, Reason: lease.Reason, StateAfter: remaining.State}.withLease(lease, h))
		return l.put(remaining)
	})
	return exchanged && err == nil, cmp.Or(err, refusal)
}

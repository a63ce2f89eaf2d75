package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// maxEndedPerChange bounds how many ended leases one ADD clears away, so that no ADD pays for all. It is more than
// one ADD can leave behind.
const maxEndedPerChange = 64

// freeExpired frees what nobody has any more. Every change begins with it.
func (l *leaseTx) freeExpired() error {
	return errors.Join(l.freeEarlierBoots(), l.freeEnded())
}

// freeEnded frees what is not reserved or in quarantine any more.
func (l *leaseTx) freeEnded() error {
	due, err := l.endedLeases(maxEndedPerChange)
	if err != nil {
		return err
	}
	for _, lease := range due {
		if err := l.record(lease, Holder{}, Ended, lease.Describe(), Lease{}); err != nil {
			return err
		}
	}
	return nil
}

// earlierBootReason is why freeEarlierBoots gives up an address.
const earlierBootReason = "held in an earlier boot"

// freeEarlierBoots gives up what was held in an earlier boot: no sandbox outlives its boot. Only the first change of a
// boot has something to do here.
func (l *leaseTx) freeEarlierBoots() error {
	if l.text(keyBoot) == l.bootID() {
		return nil
	}
	leases, err := l.all()
	for _, lease := range leases {
		if slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot) {
			err = errors.Join(err, l.giveUp(lease, l.isOfEarlierBoot, earlierBootReason))
		}
	}
	return errors.Join(err, l.putText(keyBoot, l.bootID()))
}

// isOfEarlierBoot says whether the holder is of an earlier boot, and so gone.
func (l *leaseTx) isOfEarlierBoot(h Holder) bool { return h.Namespace.BootID != l.bootID() }

// giveUp removes the holders that match. With the last holder, the address is given up. No policy keeps what an operator releases.
func (l *leaseTx) giveUp(lease Lease, match func(Holder) bool, reason string) error {
	remaining, eventType := lease.withoutHolders(match, reason, l.instant), GaveUp
	switch {
	case reason == ByHand:
		if eventType = ReleasedByHand; remaining.State != Held {
			released := lease.withoutSticky()
			released.dropByHand()
			remaining = released.GivenUp(releasedByHand, l.instant)
		}
	case remaining.State == Reserved && !remaining.ByHand:
		superseded, err := l.superseded(remaining)
		if err != nil {
			return err
		}
		if superseded {
			remaining = lease.withoutSticky().GivenUp(reason, l.instant)
		}
	}
	for _, h := range lease.Holders {
		if match(h) {
			l.addEvent(Event{Type: eventType, Reason: reason, StateAfter: remaining.State}.withLease(lease, h))
		}
	}
	return l.replace(lease, remaining)
}

// replace stores the lease that is left of the previous one, if any is.
func (l *leaseTx) replace(previous, remaining Lease) error {
	if remaining.isFree() {
		return l.remove(previous)
	}
	return l.put(remaining)
}

// record stores what remains of the lease, and adds the event of that. h is the holder that it happened to, the zero Holder for none.
func (l *leaseTx) record(lease Lease, h Holder, t EventType, reason string, remaining Lease) error {
	l.addEvent(Event{Type: t, Reason: reason, StateAfter: remaining.State}.withLease(lease, h))
	return l.replace(lease, remaining)
}

// superseded says whether the owner has another address of the same set on the same interface by now. Then
// nobody would ever ask for this one again if it stayed reserved.
func (l *leaseTx) superseded(lease Lease) (bool, error) {
	if lease.Last.Policy.keptForSeveral() {
		return false, nil // Another pod of the owner has the other address.
	}
	leases, err := l.ownedBy(lease.Owner)
	if err != nil {
		return false, err
	}
	for _, candidate := range leases {
		held := slices.ContainsFunc(candidate.Holders, func(h Holder) bool {
			return h.IfName == lease.Last.IfName && !l.isOfEarlierBoot(h)
		})
		if !held || candidate.Address == lease.Address {
			continue
		}
		if ok, err := l.inSameSet(lease.Address, candidate.Address); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// SeenHolder is a holder of an address, as somebody has seen it.
type SeenHolder struct {
	Address netip.Addr
	Holder  Holder
}

// ByHand is why an operator gives up an address or ends a reservation, whatever keeps it. It is also why an operator's reservation is there.
const ByHand = "by hand"

// releasedByHand is why an address that an operator released is in quarantine.
const releasedByHand = "released by hand"

// Release has the attachment give up whatever it holds, and nothing that another one holds, even of the same owner. That is its DEL.
// The addresses stay reserved for the owner if its lease says so, or current, which is the policy in the attachment's configuration now.
// ErrNotLeased: there is no store.
func (s *Store) Release(ctx context.Context, a attachment.Key, current Policy) error {
	// A DEL names its sandbox, so it frees nobody else's address. A runtime would repeat one that fails for ever.
	return s.AllowForeign().change(ctx, func(l *leaseTx) error { return l.release(a, current) })
}

func (l *leaseTx) release(a attachment.Key, current Policy) error {
	held, err := l.heldBy(a)
	if err == nil && len(held) == 0 {
		err = errUnchanged
	}
	for _, lease := range held {
		lease.makeSticky(a, current)
		err = errors.Join(err, l.giveUp(lease, func(h Holder) bool { return h.IsAttachment(a) }, "released"))
	}
	return err
}

// GiveUp has the holders give up their addresses. reason is the proof that they are gone, for History. ErrHolderChanged: a holder
// has its address no more; ErrNotLeased: an address is free. The other holders give theirs up then, unless it is ByHand. ErrNotLeased also if
// there is no store.
func (s *Store) GiveUp(ctx context.Context, holders []SeenHolder, reason string) error {
	var changed error
	err := s.change(ctx, func(l *leaseTx) error {
		if err := l.freeExpired(); err != nil {
			return err
		}
		if reason == ByHand {
			for _, h := range holders {
				if _, err := l.leaseOf(h); err != nil {
					return err
				}
			}
		}
		count := 0
		for _, h := range holders {
			lease, err := l.leaseOf(h)
			if err == nil {
				err = l.giveUp(lease, h.Holder.isSame, reason)
			}
			switch {
			case err == nil:
				count++
			case errors.Is(err, ErrHolderChanged), errors.Is(err, ErrNotLeased):
				changed = errors.Join(changed, err)
			default:
				return err
			}
		}
		if count == 0 {
			return errUnchanged
		}
		return nil
	})
	return cmp.Or(err, changed)
}

// leaseOf returns the lease of the holder's address, if it still has it.
func (l *leaseTx) leaseOf(expected SeenHolder) (Lease, error) {
	lease, err := l.find(expected.Address)
	if err = cmp.Or(err, l.checkLeased(expected.Address, lease)); err == nil && !slices.ContainsFunc(lease.Holders, expected.Holder.isSame) {
		err = notAsExpected(lease)
	}
	return lease, err
}

// makeSticky makes the attachment keep the address reserved when it gives it up, if the policy says so.
func (l *Lease) makeSticky(a attachment.Key, p Policy) {
	l.Holders = slices.Clone(l.Holders)
	for i, h := range l.Holders {
		if !h.IsAttachment(a) || !p.Sticky || h.Policy.Sticky {
			continue
		}
		l.Holders[i].Policy.Sticky, l.Holders[i].Policy.Retain = true, p.Retain
		// A pod that nothing makes again is its own owner, by its UID. Nobody ever asks for that UID again, but for the name.
		if o := h.Pod.Owner(); l.Owner.Kind == attachment.OwnerPod && l.Owner.UID != "" && o != (attachment.Owner{}) && len(l.Holders) == 1 {
			l.Owner = o
		}
	}
}

// End ends a reservation whose owner will not come back, only if the lease is still as the caller has seen it. The address goes into
// quarantine if that is not over, else it is free. reason is the proof, for History. ByHand also ends a quarantine, and what an
// operator has reserved, which nothing else does. ErrHolderChanged: the lease has changed, or is kept by hand;
// ErrNotLeased: the address is free.
func (s *Store) End(ctx context.Context, reservation Lease, reason string) error {
	return s.change(ctx, func(l *leaseTx) error {
		lease, err := l.current(reservation.Address)
		switch {
		case err != nil:
			return err
		case reason == ByHand && lease.waitsLike(reservation):
			return l.record(lease, Holder{}, ReleasedByHand, "it was "+lease.Describe(), lease.unreserved(releasedByHand, l.instant))
		case reason != ByHand && lease.isReservation(reservation) && !lease.ReservedByHandAt(l.instant):
			return l.record(lease, lease.Last, Ended, reason, lease.unreserved(reason, l.instant))
		}
		return notAsExpected(lease)
	})
}

// waitsLike says whether nobody holds the address, and it waits for the same as when it was seen.
func (l Lease) waitsLike(expected Lease) bool {
	return l.State != Held && l.State == expected.State && l.Owner == expected.Owner && (l.State != Quarantined || l.Last.sameAttachment(expected.Last))
}

// isReservation says whether the lease is the reservation that was seen. An ADD and a DEL in between make
// another one of the same owner.
func (l Lease) isReservation(expected Lease) bool {
	return l.State == Reserved && l.waitsLike(expected) && l.ReleasedAt.Equal(expected.ReleasedAt) && l.Until.Equal(expected.Until) && l.Last.isSame(expected.Last) &&
		l.ByHand == expected.ByHand && l.ByHandAt.Equal(expected.ByHandAt) && l.ByHandUntil.Equal(expected.ByHandUntil)
}

// sameAttachment says whether both holders are one attachment.
func (h Holder) sameAttachment(o Holder) bool {
	return h.ContainerID == o.ContainerID && h.IfName == o.IfName
}

// isSame says whether the attachment has the address from the same time on.
func (h Holder) isSame(o Holder) bool {
	return h.sameAttachment(o) && h.Since.Equal(o.Since) && h.Namespace == o.Namespace
}

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
		return l.record(lease, h, InConflict, lease.Reason, remaining)
	})
	return exchanged && err == nil, cmp.Or(err, refusal)
}

package lease

import (
	"cmp"
	"context"
	"errors"
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
		l.addEvent(Event{Type: Ended, Reason: lease.Describe()}.withLease(lease, Holder{}))
		if err := l.remove(lease); err != nil {
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

// giveUp removes the holders that are gone. With the last holder, the address is given up.
func (l *leaseTx) giveUp(lease Lease, match func(Holder) bool, reason string) error {
	remaining := lease.withoutHolders(match, reason, l.instant)
	if remaining.State == Reserved && !remaining.ByHand {
		superseded, err := l.superseded(remaining)
		if err != nil {
			return err
		}
		if superseded {
			remaining = lease.withoutSticky().withoutHolders(match, reason, l.instant)
		}
	}
	return l.putRemaining(lease, remaining, match, GaveUp, reason)
}

// putRemaining stores the lease that is left, and notes what happened to each holder that is gone.
func (l *leaseTx) putRemaining(previous, remaining Lease, match func(Holder) bool, eventType EventType, reason string) error {
	for _, h := range previous.Holders {
		if match(h) {
			l.addEvent(Event{Type: eventType, Reason: reason, StateAfter: remaining.State}.withLease(previous, h))
		}
	}
	return l.replace(previous, remaining)
}

// replace stores the lease that is left of the previous one, if any is.
func (l *leaseTx) replace(previous, remaining Lease) error {
	if remaining.isFree() {
		return l.remove(previous)
	}
	return l.put(remaining)
}

// endReservation ends the reservation: the address goes into quarantine, or is free.
func (l *leaseTx) endReservation(reservation Lease, last Holder, reason string) error {
	remaining := reservation.unreserved(reason, l.instant)
	l.addEvent(Event{Type: Ended, Reason: reason, StateAfter: remaining.State}.withLease(reservation, last))
	return l.replace(reservation, remaining)
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

// Release gives up whatever the attachment holds, and nothing that another one holds, even of the same
// owner. The address stays reserved for the owner if its lease says so, or sticky, which is the policy in the
// attachment's configuration now. ErrNotLeased: there is no store.
func (s *Store) Release(ctx context.Context, a attachment.Key, sticky Policy) error {
	// A DEL names its sandbox, so it frees nobody else's address. A runtime would repeat one that fails for ever.
	return s.AllowForeign().change(ctx, func(l *leaseTx) error { return l.release(a, sticky) })
}

func (l *leaseTx) release(a attachment.Key, sticky Policy) error {
	held, err := l.heldBy(a)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return errUnchanged
	}
	for _, lease := range held {
		lease.makeSticky(a, sticky)
		if err := l.giveUp(lease, func(h Holder) bool { return h.IsAttachment(a) }, "released"); err != nil {
			return err
		}
	}
	return nil
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

// GoneHolder is a holder that is proven gone, as it was seen. Reason is the proof.
type GoneHolder struct {
	Address netip.Addr
	Holder  Holder
	Reason  string
}

// GiveUp has the holders give up their addresses, each only if it still has the address from the same time. ErrHolderChanged: one has it no
// more; ErrNotLeased: an address is free. The others give theirs up then. ErrNotLeased also if there is no store.
func (s *Store) GiveUp(ctx context.Context, holders ...GoneHolder) error {
	var changed error
	err := s.change(ctx, func(l *leaseTx) error {
		if err := l.freeExpired(); err != nil {
			return err
		}
		count, err := 0, error(nil)
		if count, changed, err = l.giveUpHolders(holders); err == nil && count == 0 {
			return errUnchanged
		}
		return err
	})
	return cmp.Or(err, changed)
}

// giveUpHolders has the holders give up their addresses, and counts them. changed says which of them have theirs no more.
func (l *leaseTx) giveUpHolders(holders []GoneHolder) (count int, changed, err error) {
	for _, g := range holders {
		match := func(h Holder) bool {
			return h.sameAttachment(g.Holder) && h.Since.Equal(g.Holder.Since) && h.Namespace == g.Holder.Namespace
		}
		lease, err := l.find(g.Address)
		switch {
		case err != nil:
			return count, nil, err
		case lease.isFree():
			changed = errors.Join(changed, l.checkLeased(g.Address, lease))
		case !slices.ContainsFunc(lease.Holders, match):
			changed = errors.Join(changed, notAsExpected(lease))
		default:
			if err := l.giveUp(lease, match, g.Reason); err != nil {
				return count, nil, err
			}
			count++
		}
	}
	return count, changed, nil
}

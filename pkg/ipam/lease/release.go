package lease

import (
	"context"
	"errors"
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
	_, err := l.giveUpAny(l.isOfEarlierBoot, earlierBootReason)
	return errors.Join(err, l.putText(keyBoot, l.bootID()))
}

// giveUpAny removes these holders from all leases. found says whether there were any.
func (l *leaseTx) giveUpAny(match func(Holder) bool, reason string) (found bool, err error) {
	var leases []Lease
	err = l.each(func(lease Lease) error {
		if slices.ContainsFunc(lease.Holders, match) {
			leases = append(leases, lease)
		}
		return nil
	})
	for _, lease := range leases {
		err = errors.Join(err, l.giveUp(lease, match, reason))
	}
	return len(leases) > 0, err
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
	// A DEL names its sandbox, so it frees nothing of a stranger. A runtime would repeat one that fails for ever.
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
		// A pod that nothing makes again is its own owner, by its UID. Nobody ever asks for that one again, but for its name.
		if o := h.Pod.Owner(); l.Owner.Kind == attachment.OwnerPod && l.Owner.UID != "" && o != (attachment.Owner{}) && len(l.Holders) == 1 {
			l.Owner = o
		}
	}
}

// Collect gives up what holders have that are not kept. ErrNotLeased: there is no store.
func (s *Store) Collect(ctx context.Context, kept func(Holder) bool) error {
	return s.change(ctx, func(l *leaseTx) error {
		found, err := l.giveUpAny(func(h Holder) bool { return !kept(h) }, "its attachment is not valid any more")
		if err == nil && !found {
			return errUnchanged
		}
		return err
	})
}

// ReleasePrevious is for an attachment whose ADD has succeeded. It removes earlier holders of the attachment's
// addresses whose sandboxes are gone: they will not need the addresses again. A sandbox that is still there
// stays a holder until its own DEL: a later plugin of the list can fail, and then the new attachment goes
// again. ErrNotLeased: there is no store.
func (s *Store) ReleasePrevious(ctx context.Context, a attachment.Key, isGone func(Holder) bool) error {
	return s.change(ctx, func(l *leaseTx) error {
		held, err := l.heldBy(a)
		if err != nil {
			return err
		}
		unchanged := errUnchanged
		for _, lease := range held {
			before := lease.Holders[:slices.IndexFunc(lease.Holders, func(h Holder) bool { return h.IsAttachment(a) })]
			before = slices.DeleteFunc(slices.Clone(before), func(h Holder) bool { return !isGone(h) })
			if len(before) == 0 {
				continue
			}
			match := func(h Holder) bool { return slices.ContainsFunc(before, h.sameAttachment) }
			if err := l.giveUp(lease, match, "its sandbox is gone, and the owner's next one is attached"); err != nil {
				return err
			}
			unchanged = nil
		}
		return unchanged
	})
}

// RemoveHolder removes a holder whose sandbox is proven gone. It does so only if that holder still has the
// address from the same time. reason is the proof. ErrHolderChanged: the holder has it no more; ErrNotLeased: the address
// is free.
func (s *Store) RemoveHolder(ctx context.Context, held Lease, holder Holder, reason string) error {
	return s.change(ctx, func(l *leaseTx) error {
		lease, err := l.current(held.Address)
		if err != nil {
			return err
		}
		match := func(h Holder) bool {
			return h.sameAttachment(holder) && h.Since.Equal(holder.Since) && h.Namespace == holder.Namespace
		}
		if !slices.ContainsFunc(lease.Holders, match) {
			return notAsExpected(lease)
		}
		return l.giveUp(lease, match, reason)
	})
}

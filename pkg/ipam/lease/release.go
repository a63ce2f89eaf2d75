package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// dueAtOnce bounds how many ended leases one ADD clears away, so that no ADD pays for all. It is more than
// one ADD can leave behind.
const dueAtOnce = 64

// settle frees what nobody has any more. Every change begins with it.
func (l *leases) settle() error {
	return errors.Join(l.newBoot(), l.endDue())
}

// endDue frees what is not reserved or in quarantine any more.
func (l *leases) endDue() error {
	due, err := l.ended(dueAtOnce)
	if err != nil {
		return err
	}
	for _, lease := range due {
		l.note(Event{What: Ended, Why: lease.Whose()}.of(lease, Holder{}))
		if err := l.remove(lease); err != nil {
			return err
		}
	}
	return nil
}

// earlierBoot is why newBoot gives up an address.
const earlierBoot = "held in an earlier boot"

// newBoot gives up what was held in an earlier boot: no sandbox outlives its boot. Only the first change of a
// boot has something to do here.
func (l *leases) newBoot() error {
	bootID, err := l.store.boot()
	if err != nil || string(l.meta.Get([]byte(keyBoot))) == bootID {
		return err
	}
	earlier, err := l.ofEarlierBoots()
	if err != nil {
		return err
	}
	for _, lease := range earlier {
		if err := l.giveUp(lease, l.isOfEarlierBoot, earlierBoot); err != nil {
			return err
		}
	}
	return l.meta.Put([]byte(keyBoot), []byte(bootID))
}

// ofEarlierBoots returns what newBoot still has to give up in this boot.
func (l *leases) ofEarlierBoots() ([]Lease, error) {
	bootID, err := l.store.boot()
	if err != nil || string(l.meta.Get([]byte(keyBoot))) == bootID {
		return nil, err
	}
	var earlier []Lease
	err = l.each(func(lease Lease) error {
		if slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot) {
			earlier = append(earlier, lease)
		}
		return nil
	})
	return earlier, err
}

// isOfEarlierBoot says whether the holder is of an earlier boot, and so gone.
func (l *leases) isOfEarlierBoot(h Holder) bool {
	bootID, err := l.store.boot()
	return err == nil && h.Namespace.BootID != bootID
}

// giveUp removes the holders that are gone. With the last holder, the address is given up.
func (l *leases) giveUp(lease Lease, gone func(Holder) bool, why string) error {
	left, ok := lease.without(gone, why, l.now)
	if ok && left.State == Reserved && !left.ByHand {
		superseded, err := l.superseded(left)
		if err != nil {
			return err
		}
		if superseded {
			left, ok = lease.notSticky().without(gone, why, l.now)
		}
	}
	return l.leave(lease, left, ok, gone, GaveUp, why)
}

// leave stores the lease that is left, and notes what happened to each holder that is gone.
func (l *leases) leave(was, left Lease, ok bool, gone func(Holder) bool, what What, why string) error {
	for _, h := range was.Holders {
		if gone(h) {
			l.note(Event{What: what, Why: why, Then: left.State}.of(was, h))
		}
	}
	if !ok {
		return l.remove(was)
	}
	return l.put(left)
}

// superseded says whether the owner has another address of the same set on the same interface by now. Then
// nobody would ever ask for this one again if it stayed reserved.
func (l *leases) superseded(given Lease) (bool, error) {
	if given.Last.Policy.keptForSeveral() {
		return false, nil // Another pod of the owner has the other address.
	}
	all, err := l.ownedBy(given.Owner)
	if err != nil {
		return false, err
	}
	for _, other := range all {
		held := slices.ContainsFunc(other.Holders, func(h Holder) bool {
			return h.IfName == given.Last.IfName && !l.isOfEarlierBoot(h)
		})
		if !held || other.Address == given.Address {
			continue
		}
		if same, err := l.inOneSet(given.Address, other.Address); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// Release gives up whatever the attachment holds, and nothing that another one holds, even of the same
// owner. The address stays reserved for the owner if its lease says so, or sticky, which is the policy in the
// attachment's configuration now. If the network was renamed, it looks in the store of the new name.
// ErrNone: there is no store.
func (s *Store) Release(ctx context.Context, a attachment.Key, sticky Policy) error {
	// A DEL names its sandbox, so it frees nothing of a stranger. A runtime would repeat one that fails for ever.
	s = s.EvenForeign()
	unused := false
	release := func(l *leases) error {
		if first, _ := l.ranges.Cursor().First(); first == nil { // An ADD that was refused leaves such a store.
			held, err := l.heldBy(a)
			unused = len(held) == 0 && err == nil
		}
		return l.release(a, sticky)
	}
	err := s.change(ctx, release)
	here := err == nil && !unused || err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrRenaming) && !errors.Is(err, ErrMoved)
	if here {
		return err
	}
	if to, looked := s.renamedTo(ctx, a); to != nil {
		to = to.EvenForeign()
		if err = to.change(ctx, release); errors.Is(err, ErrNone) { // Another Rename has just moved it on.
			err = fmt.Errorf("network %s: %w", to.network, ErrMoved)
		}
		return err
	} else if looked != nil || !errors.Is(err, ErrRenaming) {
		return cmp.Or(looked, err)
	}
	// The other store has not taken the leases yet.
	frozen := *s
	frozen.evenFrozen = true
	return frozen.change(ctx, release)
}

func (l *leases) release(a attachment.Key, sticky Policy) error {
	held, err := l.heldBy(a)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return errUnchanged
	}
	for _, lease := range held {
		lease.makeSticky(a, sticky)
		if err := l.giveUp(lease, func(h Holder) bool { return h.is(a) }, "released"); err != nil {
			return err
		}
	}
	return nil
}

// makeSticky makes the attachment keep the address reserved when it gives it up, if the policy says so.
func (l *Lease) makeSticky(a attachment.Key, p Policy) {
	l.Holders = slices.Clone(l.Holders)
	for i, h := range l.Holders {
		if !h.is(a) || !p.Sticky || h.Policy.Sticky {
			continue
		}
		l.Holders[i].Policy.Sticky, l.Holders[i].Policy.Retain = true, p.Retain
		// A pod that nothing makes again is its own owner, by its UID. Nobody ever asks for that one again, but for its name.
		if o := h.Pod.Owner(); l.Owner.Kind == attachment.OwnerPod && l.Owner.UID != "" && o != (attachment.Owner{}) && len(l.Holders) == 1 {
			l.Owner = o
		}
	}
}

// Collect gives up what holders have that are not kept. Holders by an earlier name of the network stay: a GC by this name
// does not know them. ErrNone: there is no store.
func (s *Store) Collect(ctx context.Context, kept func(Holder) bool) error {
	return s.change(ctx, func(l *leases) error {
		invalid := func(h Holder) bool { return cmp.Or(h.Network, s.network) == s.network && !kept(h) }
		all, err := l.all()
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(lease Lease) bool { return !slices.ContainsFunc(lease.Holders, invalid) })
		if len(all) == 0 {
			return errUnchanged
		}
		for _, lease := range all {
			if err := l.giveUp(lease, invalid, "its attachment is not valid any more"); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settled is for an attachment whose ADD has succeeded. It removes earlier holders of the attachment's
// addresses whose sandboxes are gone: they will not need the addresses again. A sandbox that is still there
// stays a holder until its own DEL: a later plugin of the list can fail, and then the new attachment goes
// again. ErrNone: there is no store.
func (s *Store) Settled(ctx context.Context, a attachment.Key, isGone func(Holder) bool) error {
	return s.change(ctx, func(l *leases) error {
		held, err := l.heldBy(a)
		if err != nil {
			return err
		}
		unchanged := errUnchanged
		for _, lease := range held {
			before := lease.Holders[:slices.IndexFunc(lease.Holders, func(h Holder) bool { return h.is(a) })]
			before = slices.DeleteFunc(slices.Clone(before), func(h Holder) bool { return !isGone(h) })
			if len(before) == 0 {
				continue
			}
			gone := func(h Holder) bool {
				return slices.ContainsFunc(before, func(b Holder) bool { return h.is(b.Key(s.network)) })
			}
			if err := l.giveUp(lease, gone, "its sandbox is gone, and the owner's next one is attached"); err != nil {
				return err
			}
			unchanged = nil
		}
		return unchanged
	})
}

// Abandon removes a holder whose sandbox is proven gone. It does so only if that holder still has the
// address from the same time. why is the proof. ErrHolder: the holder has it no more; ErrNone: the address
// is free.
func (s *Store) Abandon(ctx context.Context, held Lease, holder Holder, why string) error {
	return s.change(ctx, func(l *leases) error {
		lease, err := l.current(held.Address)
		if err != nil {
			return err
		}
		is := func(h Holder) bool {
			return h.is(holder.Key(s.network)) && h.Since.Equal(holder.Since) && h.Namespace == holder.Namespace
		}
		if !slices.ContainsFunc(lease.Holders, is) {
			return notAsExpected(lease)
		}
		return l.giveUp(lease, is, why)
	})
}

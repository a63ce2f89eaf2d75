package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// dueAtOnce bounds how many leases that have ended an ADD clears away, so that none
// pays for all. Each can leave one of its own behind.
const dueAtOnce = 64

// settle makes free what nobody has any more, before somebody asks for it.
func (l *leases) settle() error {
	return errors.Join(l.newBoot(), l.endDue())
}

// endDue makes free what is reserved or in quarantine no longer.
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

// earlierBoot is why what newBoot gives up is given up.
const earlierBoot = "held in an earlier boot"

// newBoot gives up what was held in an earlier boot: no sandbox outlives one. It has
// nothing to do but for the first time in a boot.
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

// ofEarlierBoots returns what newBoot gives up in this boot, or has yet to.
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

// isOfEarlierBoot says whether the holder can't be there any more.
func (l *leases) isOfEarlierBoot(h Holder) bool {
	bootID, err := l.store.boot()
	return err == nil && h.Namespace.BootID != bootID
}

// giveUp ends the holding of those that are gone. With the last of them the address is given
// up.
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

// leave makes what is left the lease of its address, and notes for each holder that is gone
// what happened.
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

// superseded says whether the owner has another address of the same set on the same
// interface by now: one that is reserved for it as well would never be asked for again.
func (l *leases) superseded(given Lease) (bool, error) {
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

// Release gives up whatever the attachment holds: what another holds, of the same owner
// too, is not touched. It is reserved for the owner also if only sticky says so, which is the
// policy of the attachment's configuration now. If the network was renamed, the store by its new name
// is meant. ErrNone: there is no store.
func (s *Store) Release(ctx context.Context, a attachment.Key, sticky Policy) error {
	unused := false
	release := func(l *leases) error {
		if first, _ := l.ranges.Cursor().First(); first == nil { // As after an ADD that was refused.
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
		if err = to.change(ctx, release); errors.Is(err, ErrNone) { // A Rename has just been there, too.
			err = fmt.Errorf("network %s: %w", to.network, ErrMoved)
		}
		return err
	} else if looked != nil || !errors.Is(err, ErrRenaming) {
		return cmp.Or(looked, err)
	}
	// Nobody has taken it over from here yet.
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

// makeSticky has the address reserved once the attachment gives it up, if the policy says so.
func (l *Lease) makeSticky(a attachment.Key, p Policy) {
	l.Holders = slices.Clone(l.Holders)
	for i, h := range l.Holders {
		if h.is(a) && p.Sticky && !h.Policy.Sticky {
			l.Holders[i].Policy.Sticky, l.Holders[i].Policy.Retain = true, p.Retain
		}
	}
}

// Collect gives up what attachments hold that are not valid any more. Those that were attached by an
// earlier name of the network stay: nobody who speaks of this one speaks of them. ErrNone: there is no
// store.
func (s *Store) Collect(ctx context.Context, valid func(attachment.Key) bool) error {
	return s.change(ctx, func(l *leases) error {
		invalid := func(h Holder) bool { return cmp.Or(h.Network, s.network) == s.network && !valid(h.Key(s.network)) }
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

// Settled lets those holders go that had before it what the attachment holds, if their sandboxes
// are gone: the ADD of the attachment has succeeded, so that nothing falls back to them. A sandbox
// that is there holds on until its own DEL: a later plugin of the list can still fail, and the
// attachment is taken away again. ErrNone: there is no store.
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

// Abandon lets the holder go of the address, if it has it still and was given it then: its
// sandbox is proven gone, and why says by what. ErrHolder: it has not; ErrNone: the address is
// free.
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

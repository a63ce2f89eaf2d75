package lease

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ReleaseByHand is what an operator does who has seen the lease and means these holders, or all.
func (s *Store) ReleaseByHand(ctx context.Context, seen Lease, holders ...Holder) error {
	if seen.State != Held {
		return s.End(ctx, seen, ByHand)
	}
	if holders == nil {
		holders = seen.Holders
	}
	var meant []SeenHolder
	for _, h := range holders {
		meant = append(meant, SeenHolder{seen.Address, h})
	}
	return s.GiveUp(ctx, meant, ByHand)
}

// giveUpWhere has the holders give up that match.
func (s *Store) giveUpWhere(ctx context.Context, leases []Lease, reason string, match func(Holder) bool) error {
	var gone []SeenHolder
	for _, l := range leases {
		for _, h := range l.Holders {
			if match(h) {
				gone = append(gone, SeenHolder{l.Address, h})
			}
		}
	}
	err := s.GiveUp(ctx, gone, reason)
	if errors.Is(err, ErrHolderChanged) {
		return nil
	}
	return err
}

// Collect is what a GC does: it gives up what holders have that are not kept.
func (s *Store) Collect(ctx context.Context, kept func(Holder) bool) error {
	leases, err := s.List(ctx)
	if err != nil {
		return err
	}
	return s.giveUpWhere(ctx, leases, "its attachment is not valid any more", func(h Holder) bool { return !kept(h) })
}

// ReleasePrevious is what an ADD does that has succeeded: it gives up what the attachment's earlier sandboxes have that are gone.
func (s *Store) ReleasePrevious(ctx context.Context, a attachment.Key, isGone func(Holder) bool) error {
	leases, err := s.HeldBy(ctx, a)
	if err != nil {
		return err
	}
	for i, l := range leases {
		leases[i].Holders = l.Holders[:slices.IndexFunc(l.Holders, func(h Holder) bool { return h.IsAttachment(a) })]
	}
	return s.giveUpWhere(ctx, leases, "its sandbox is gone, and the owner's next one is attached", isGone)
}

// RemoveHolder gives up for one holder.
func (s *Store) RemoveHolder(ctx context.Context, held Lease, h Holder, reason string) error {
	return s.GiveUp(ctx, []SeenHolder{{held.Address, h}}, reason)
}

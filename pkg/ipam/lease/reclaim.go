package lease

import (
	"context"
	"time"
)

// KeptByHand says whether an operator's reservation of the address is in force. now is the store's time
// (ClockAhead).
func (l Lease) KeptByHand(now time.Time) bool { return l.byHand(now) }

// EndReservation ends a reservation whose owner will not come back. It does so only if the lease is still as
// the caller has seen it, and no operator has reserved the address. The address goes into quarantine if that
// is not over, else it is free. why is the proof, for History. ErrHolder: the lease has changed, or is kept
// by hand; ErrNone: the address is free.
func (s *Store) EndReservation(ctx context.Context, seen Lease, why string) error {
	return s.change(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		lease, err := l.current(seen.Address)
		if err != nil {
			return err
		}
		if !lease.isReservation(seen) || lease.byHand(l.now) {
			return notAsExpected(lease)
		}
		left, ok := lease.unreserved(why, l.now)
		l.note(Event{What: Ended, Why: why, Then: left.State}.of(lease, lease.Last))
		if !ok {
			return l.remove(lease)
		}
		return l.put(left)
	})
}

// isReservation says whether the lease is the reservation that was seen. An ADD and a DEL in between make
// another one of the same owner.
func (l Lease) isReservation(seen Lease) bool {
	last, was := l.Last, seen.Last
	return l.State == Reserved && seen.State == Reserved && l.Owner == seen.Owner && l.ReleasedAt.Equal(seen.ReleasedAt) &&
		l.Until.Equal(seen.Until) && l.ByHand == seen.ByHand && l.ByHandAt.Equal(seen.ByHandAt) && l.ByHandUntil.Equal(seen.ByHandUntil) &&
		last.sameAttachment(was) && last.Since.Equal(was.Since) && last.Namespace == was.Namespace
}

package lease

import (
	"context"
	"time"
)

// ReservedByHandAt says whether an operator's reservation of the address is in force. instant is the store's time
// (ClockAhead).
func (l Lease) ReservedByHandAt(instant time.Time) bool { return l.isReservedByHand(instant) }

// EndReservation ends a reservation whose owner will not come back. It does so only if the lease is still as
// the caller has seen it, and no operator has reserved the address. The address goes into quarantine if that
// is not over, else it is free. reason is the proof, for History. ErrHolderChanged: the lease has changed, or is kept
// by hand; ErrNotLeased: the address is free.
func (s *Store) EndReservation(ctx context.Context, expected Lease, reason string) error {
	return s.change(ctx, func(l *leaseTx) error {
		lease, err := l.current(expected.Address)
		if err != nil {
			return err
		}
		if !lease.isReservation(expected) || lease.isReservedByHand(l.instant) {
			return notAsExpected(lease)
		}
		return l.endReservation(lease, lease.Last, reason)
	})
}

// isReservation says whether the lease is the reservation that was seen. An ADD and a DEL in between make
// another one of the same owner.
func (l Lease) isReservation(expected Lease) bool {
	last, previous := l.Last, expected.Last
	return l.State == Reserved && expected.State == Reserved && l.Owner == expected.Owner && l.ReleasedAt.Equal(expected.ReleasedAt) &&
		l.Until.Equal(expected.Until) && l.ByHand == expected.ByHand && l.ByHandAt.Equal(expected.ByHandAt) && l.ByHandUntil.Equal(expected.ByHandUntil) &&
		last.sameAttachment(previous) && last.Since.Equal(previous.Since) && last.Namespace == previous.Namespace
}

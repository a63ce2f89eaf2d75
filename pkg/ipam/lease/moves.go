package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// minIncomingWait is how long an address waits at least for its owner: the other node may have to give it up first.
const minIncomingWait = 10 * time.Minute

// ReserveIncoming reserves an address for the owner that another node is about to give to this one, so that nobody else gets it when
// it comes. ifName is the interface of the owner's pods, and reason is for people. It changes nothing if the address is
// the owner's already. ErrTaken: somebody else has a lease of it; ErrNotLeased: there is no store.
func (s *Store) ReserveIncoming(ctx context.Context, a netip.Addr, o attachment.Owner, ifName string, p Policy, reason string) error {
	if o == (attachment.Owner{}) {
		return errors.New("an address cannot be expected for nobody")
	}
	o = storable(o)
	return s.grow(ctx, func(l *leaseTx) error {
		previous, err := l.findAfterExpiry(a)
		if err != nil {
			return err
		}
		if !previous.isFree() && previous.State != Quarantined {
			if previous.Owner == o {
				return errUnchanged
			}
			return fmt.Errorf("%s is %w: it is %s", a, ErrTaken, previous.describeFor(o))
		}
		lease := Lease{
			Address: a, Network: s.network, Owner: o, State: Reserved, ReleasedAt: l.instant, Reason: reason,
			Last: Holder{IfName: ifName, Policy: p},
		}
		if lease.Until = lease.reservedUntil(l.instant); !lease.Until.IsZero() {
			lease.Until = latest(lease.Until, l.instant.Add(minIncomingWait))
		}
		l.addEvent(Event{Type: Awaited, Reason: reason, StateAfter: Reserved}.withLease(lease, Holder{}))
		failpoint.Here("before expecting address")
		return l.put(lease)
	})
}

// CancelIncoming ends a reservation of an address that this node does not have: what ReserveIncoming has reserved does not come, or the pod for
// which it was to come has ended before. An address that has come waits for its owner, as if a pod had had it. ErrNotLeased: there is no
// store.
func (s *Store) CancelIncoming(ctx context.Context, poolName string, a netip.Addr, o attachment.Owner) error {
	return s.changeOwned(ctx, a, o, func(l *leaseTx, lease Lease) error {
		granted, err := l.mayGive(poolName, a)
		if err != nil {
			return err
		}
		if lease.State != Reserved || lease.ReservedByHandAt(l.instant) || granted {
			return errUnchanged
		}
		l.addEvent(Event{Type: Ended, Reason: "it does not come to this node"}.withLease(lease, Holder{}))
		return l.remove(lease)
	})
}

// changeOwned runs the change on the lease of the address, if it is on behalf of the owner. First it gives up what pods of an earlier
// boot held.
func (s *Store) changeOwned(ctx context.Context, a netip.Addr, o attachment.Owner, change func(*leaseTx, Lease) error) error {
	return s.change(ctx, func(l *leaseTx) error {
		lease, err := l.findAfterExpiry(a)
		if err != nil {
			return err
		}
		if lease.isFree() || lease.Owner != storable(o) {
			return errUnchanged
		}
		return change(l, lease)
	})
}

// mayGive says whether this node may give the address.
func (l *leaseTx) mayGive(poolName string, a netip.Addr) (ok bool, err error) {
	err = l.eachGrant(poolName, func(g pool.Grant) { ok = ok || g.MayGive(a) })
	return ok, err
}

// KeepUntilClaimed makes the address wait for the owner without a time limit when its pods here end: the owner's next pod is on another node
// already. It changes nothing if no pod of the owner has the address. ErrNotLeased: there is no store.
func (s *Store) KeepUntilClaimed(ctx context.Context, a netip.Addr, o attachment.Owner) error {
	return s.changeOwned(ctx, a, o, func(l *leaseTx, lease Lease) error {
		lease.Holders = slices.Clone(lease.Holders)
		err := errUnchanged
		for i := range lease.Holders {
			if p := &lease.Holders[i].Policy; !p.Sticky || p.Retain > 0 {
				p.Sticky, p.Retain, err = true, 0, nil
			}
		}
		if err == nil {
			err = l.put(lease)
		}
		return err
	})
}

// ClaimOf returns what the Kubernetes API is told of the lease. poolName is the pool of its address.
func (l Lease) ClaimOf(poolName string) pool.ClaimedAddress {
	h := l.Newest()
	return pool.ClaimedAddress{Address: l.Address, Acquisition: pool.Acquisition{
		Network: l.Network, Pool: poolName, IfName: h.IfName, Owner: l.Owner, Pod: h.Pod, Retain: time.Duration(h.Policy.Retain),
	}}
}

// MarkClaimed notes that the Kubernetes API knows that the address is the owner's. It changes nothing if the address is not the owner's.
// ErrNotLeased: there is no store.
func (s *Store) MarkClaimed(ctx context.Context, a netip.Addr, o attachment.Owner) error {
	return s.changeOwned(ctx, a, o, func(l *leaseTx, lease Lease) error {
		if lease.Claimed {
			return errUnchanged
		}
		lease.Claimed = true
		return l.put(lease)
	})
}

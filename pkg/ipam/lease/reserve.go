package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// ErrNotGiven says that no ADD gives the address.
var ErrNotGiven = errors.New("is never given")

// Reserve reserves the address for the owner: until somebody releases it, or for the time retain if that is
// not 0. The address may be the owner's already, or in quarantine. ErrTaken: somebody else has it;
// ErrNotGiven: no ADD gives it, by the ranges that the last ADD asked for, if any are known.
func (s *Store) Reserve(ctx context.Context, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if owner == (attachment.Owner{}) {
		return Lease{}, errNobody
	}
	return result(ctx, s.update, func(l *leaseTx) (Lease, error) {
		previous, err := l.reservable(a, owner)
		if err = cmp.Or(l.checkGiven(a), err); err != nil {
			return Lease{}, err
		}
		lease := l.reserved(previous, a, owner, retain)
		return lease, l.record(lease, Holder{}, ReservedByHand, "", lease)
	})
}

// errNobody says that an address cannot be reserved for the zero Owner.
var errNobody = errors.New("an address cannot be reserved for nobody")

// reservable returns the lease that the address has, the zero Lease for free. ErrTaken: it is another owner's.
func (l *leaseTx) reservable(a netip.Addr, o attachment.Owner) (Lease, error) {
	lease, err := l.findAfterExpiry(a)
	if err == nil && !lease.isFree() && lease.State != Quarantined && lease.Owner != o {
		err = fmt.Errorf("%s is %w: it is %s", a, ErrTaken, lease.describeFor(o))
	}
	return lease, err
}

// CheckGiven returns ErrNotGiven, with the reason, for an address that no ADD gives on this node: a gateway, an excluded address, or
// one outside of the ranges that the last ADD asked for. Another node's address of a pool matches ErrNotGranted, too. It returns nil if
// no ranges are known, and ErrNotLeased for a network that has no store.
func (s *Store) CheckGiven(ctx context.Context, a netip.Addr) error {
	return s.view(ctx, func(l *leaseTx) error { return l.checkGiven(a) })
}

// checkGiven returns ErrNotGiven for an address that no ADD gives.
func (l *leaseTx) checkGiven(a netip.Addr) error {
	sets, err := l.lastSets()
	if err != nil || len(sets) == 0 {
		return err
	}
	n := SetOf(sets.ranges(), a)
	if n < 0 {
		var spans []string
		for _, s := range sets {
			spans = append(spans, s.members.String())
		}
		return fmt.Errorf("%s %w in network %s: its last ADDs gave addresses of %s; a new range is known after its first ADD",
			a, ErrNotGiven, l.store.network, strings.Join(spans, ", "))
	}
	if ok, reason := sets[n].members.Gives(a); !ok {
		return fmt.Errorf("%s %w in network %s: %s", a, ErrNotGiven, l.store.network, reason)
	}
	if !sets[n].gives.Has(a) {
		return fmt.Errorf("%s %w in network %s: it is of pool %s, and %w: run the command on the node that has it, which kubectl relink show %s names",
			a, ErrNotGiven, l.store.network, sets[n].poolLayout.Name, ErrNotGranted, a)
	}
	return nil
}

// reserved returns the reservation that follows on the lease that the address had, the zero Lease for free. It
// ends no earlier than that lease.
func (l *leaseTx) reserved(previous Lease, a netip.Addr, owner attachment.Owner, retain time.Duration) Lease {
	var until time.Time
	if retain > 0 {
		until = l.instant.Add(retain)
	}
	lease := previous
	switch previous.State {
	case Held:
		if previous.ReservedByHandAt(l.instant) {
			until = later(until, previous.ByHandUntil)
		}
	case Reserved:
		until = later(until, previous.Until)
		lease.Until = until
	case Quarantined:
		lease.Last = Holder{Policy: Policy{Quarantine: previous.Last.Policy.Quarantine}}
		if !until.IsZero() {
			until = latest(until, previous.Until)
		}
		lease.Until = until
	default:
		lease = Lease{Address: a, Network: l.store.network, ReleasedAt: l.instant, Until: until}
	}
	if previous.State != Held {
		lease.State, lease.Reason = Reserved, ByHand
	}
	lease.Owner, lease.ByHand, lease.ByHandAt, lease.ByHandUntil = owner, true, l.instant, until
	return lease
}

// later returns the later of two ends. Zero stands for never.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return latest(a, b)
}

// minIncomingWait is how long an address waits at least for its owner: the other node may have to give it up first.
const minIncomingWait = 10 * time.Minute

// ReserveIncoming reserves an address for the owner that another node is about to give to this one, so that nobody else gets it when
// it comes. ifName is the interface of the owner's pods, and reason is for people. It changes nothing if the address is
// the owner's already. ErrTaken: somebody else has a lease of it; ErrNotLeased: there is no store.
func (s *Store) ReserveIncoming(ctx context.Context, a netip.Addr, o attachment.Owner, ifName string, p Policy, reason string) error {
	if o == (attachment.Owner{}) {
		return errNobody
	}
	return s.grow(ctx, func(l *leaseTx) error {
		previous, err := l.reservable(a, o)
		if err == nil && !previous.isFree() && previous.State != Quarantined {
			err = errUnchanged
		}
		if err != nil {
			return err
		}
		lease := Lease{
			Address: a, Network: s.network, Owner: o, State: Reserved, ReleasedAt: l.instant, Reason: reason,
			Last: Holder{IfName: ifName, Policy: p},
		}
		if lease.Until = lease.reservedUntil(l.instant); !lease.Until.IsZero() {
			lease.Until = latest(lease.Until, l.instant.Add(minIncomingWait))
		}
		failpoint.Here("before expecting address")
		return l.record(lease, Holder{}, Awaited, reason, lease)
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
		return l.record(lease, Holder{}, Ended, "it does not come to this node", Lease{})
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
		if lease.isFree() || lease.Owner != o {
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

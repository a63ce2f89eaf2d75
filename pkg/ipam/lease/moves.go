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

// leastExpected is how long an address waits at least for its owner: the other node may have to give it up first.
const leastExpected = 10 * time.Minute

// Expect reserves an address for the owner that another node is about to give to this one, so that nobody else gets it when
// it comes. ifName is the interface of the owner's pods, and why is for people. It changes nothing if the address is
// the owner's already. ErrTaken: somebody else has a lease of it; ErrNone: there is no store.
func (s *Store) Expect(ctx context.Context, a netip.Addr, o attachment.Owner, ifName string, p Policy, why string) error {
	if o == (attachment.Owner{}) {
		return errors.New("an address cannot be expected for nobody")
	}
	o = storable(o)
	return s.changeGrants(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		was, err := l.current(a)
		switch {
		case err != nil && !errors.Is(err, ErrNone):
			return err
		case err == nil && was.State != Quarantined && was.Owner == o:
			return errUnchanged
		case err == nil && was.State != Quarantined:
			return fmt.Errorf("%s is %w: it is %s", a, ErrTaken, was.whoseFor(o))
		}
		lease := Lease{
			Address: a, Network: s.network, Owner: o, State: Reserved, ReleasedAt: l.now, Why: why,
			Last: Holder{IfName: ifName, Policy: p},
		}
		if lease.Until = lease.reservedUntil(l.now); !lease.Until.IsZero() {
			lease.Until = latest(lease.Until, l.now.Add(leastExpected))
		}
		l.note(Event{What: Awaited, Why: why, Then: Reserved}.of(lease, Holder{}))
		failpoint.Here("before expecting address")
		return l.put(lease)
	})
}

// Unexpect ends a reservation of an address that this node does not have: what Expect has reserved does not come, or the pod for
// which it was to come has ended before. An address that has come waits for its owner, as if a pod had had it. ErrNone: there is no
// store.
func (s *Store) Unexpect(ctx context.Context, poolName string, a netip.Addr, o attachment.Owner) error {
	o = storable(o)
	return s.change(ctx, func(l *leases) error {
		if err := l.settle(); err != nil { // A pod of an earlier boot holds nothing any more.
			return err
		}
		lease, err := l.current(a)
		if errors.Is(err, ErrNone) {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		has, err := l.gives(poolName, a)
		if err != nil {
			return err
		}
		if lease.State != Reserved || lease.Owner != o || lease.byHand(l.now) || has {
			return errUnchanged
		}
		l.note(Event{What: Ended, Why: "it does not come to this node"}.of(lease, Holder{}))
		return l.remove(lease)
	})
}

// gives says whether this node may give the address.
func (l *leases) gives(poolName string, a netip.Addr) (bool, error) {
	g, at, err := l.grantAt(poolName, a)
	if errors.Is(err, ErrNotGranted) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	may, _ := g.May(at)
	return may, nil
}

// Await makes the address wait for the owner without a time limit when its pods here end: the owner's next pod is on another node
// already. It changes nothing if no pod of the owner has the address. ErrNone: there is no store.
func (s *Store) Await(ctx context.Context, a netip.Addr, o attachment.Owner) error {
	o = storable(o)
	return s.change(ctx, func(l *leases) error {
		lease, err := l.current(a)
		if errors.Is(err, ErrNone) || err == nil && (lease.State != Held || lease.Owner != o) {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		unchanged := errUnchanged
		lease.Holders = slices.Clone(lease.Holders)
		for i := range lease.Holders {
			if p := &lease.Holders[i].Policy; !p.Sticky || p.Retain > 0 {
				p.Sticky, p.Retain, unchanged = true, 0, nil
			}
		}
		if unchanged != nil {
			return unchanged
		}
		return l.put(lease)
	})
}

// ClaimOf is what the Kubernetes API is told of the lease, as one of an address of the pool.
func (l Lease) ClaimOf(poolName string) pool.Claimed {
	h := l.Newest()
	return pool.Claimed{Address: l.Address, Acquisition: pool.Acquisition{
		Network: l.Network, Pool: poolName, IfName: h.IfName, Owner: l.Owner, Pod: h.Pod, Retain: time.Duration(h.Policy.Retain),
	}}
}

// MarkClaimed notes that the Kubernetes API knows that the address is the owner's. It changes nothing if it is not. ErrNone: there
// is no store.
func (s *Store) MarkClaimed(ctx context.Context, a netip.Addr, o attachment.Owner) error {
	o = storable(o)
	return s.change(ctx, func(l *leases) error {
		lease, err := l.current(a)
		if errors.Is(err, ErrNone) || err == nil && (lease.Owner != o || lease.Claimed) {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		lease.Claimed = true
		return l.put(lease)
	})
}

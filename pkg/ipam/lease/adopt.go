package lease

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// View is the store as it is before leases are taken in.
type View struct {
	// Now is the time of the store.
	Now time.Time
	// BootID is that of this boot.
	BootID string
	// Get returns the lease of the address, the zero Lease for a free address.
	Get func(netip.Addr) (Lease, error)
	// Each calls f for every lease, in the order of the addresses.
	Each func(f func(Lease) error) error
	// LastGiven returns the last address that was given of the range set of that number. The zero
	// Addr stands for none.
	LastGiven func(set int) netip.Addr
}

// Intake is what is taken in.
type Intake struct {
	// Gone are holders that give up their addresses before the leases are taken in.
	Gone []Gone
	// Leases are in the order of their addresses. Each replaces the lease that its address had.
	Leases []Lease
	// Last has the last address that was given of each range set, by the number of the set.
	Last map[int]netip.Addr
	// Why is where the leases come from.
	Why string
}

// Gone is a holder that is proven gone. Why is the proof.
type Gone struct {
	Address netip.Addr
	Holder  Holder
	Why     string
}

// errDryRun undoes what a dry run did.
var errDryRun = errors.New("dry run")

// TakeIn stores the leases that decide returns: all or none. A dry run changes nothing.
func (s *Store) TakeIn(ctx context.Context, dryRun bool, decide func(View) (Intake, error)) error {
	run := func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		view, err := l.toTakeIn()
		if err != nil {
			return err
		}
		in, err := decide(view)
		if err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		return l.takeIn(in)
	}
	if !dryRun {
		return s.updateMuch(ctx, run)
	}
	err := s.change(ctx, run)
	if errors.Is(err, ErrNone) { // Without a store there is no lease.
		err = s.decideOnNothing(decide)
	}
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

func (s *Store) decideOnNothing(decide func(View) (Intake, error)) error {
	bootID, err := s.boot()
	if err != nil {
		return err
	}
	_, err = decide(View{
		Now: s.now().UTC().Truncate(time.Millisecond), BootID: bootID,
		Get:  func(netip.Addr) (Lease, error) { return Lease{}, nil },
		Each: func(func(Lease) error) error { return nil }, LastGiven: func(int) netip.Addr { return netip.Addr{} },
	})
	return err
}

func (l *leases) toTakeIn() (View, error) {
	bootID, err := l.store.boot()
	return View{
		Now: l.now, BootID: bootID, Each: l.each, LastGiven: l.lastGiven,
		Get: func(a netip.Addr) (Lease, error) {
			lease, err := l.current(a)
			if errors.Is(err, ErrNone) {
				return Lease{}, nil
			}
			return lease, err
		},
	}, err
}

func (l *leases) takeIn(in Intake) error {
	if err := l.letGo(in.Gone); err != nil {
		return err
	}
	if err := l.indexInOrder(in.Leases); err != nil {
		return err
	}
	for _, lease := range in.Leases {
		l.note(Event{What: TakenIn, Why: in.Why, Then: lease.State}.of(lease, lease.Newest()))
		if err := l.put(lease); err != nil {
			return err
		}
	}
	for set, a := range in.Last {
		if err := l.setLastGiven(set, a); err != nil {
			return err
		}
	}
	return nil
}

// letGo has the holders give up their addresses.
func (l *leases) letGo(all []Gone) error {
	for _, gone := range all {
		lease, err := l.current(gone.Address)
		if err != nil {
			return err
		}
		is := func(h Holder) bool { return h.is(gone.Holder.Key(l.store.network)) }
		if err := l.giveUp(lease, is, gone.Why); err != nil {
			return err
		}
	}
	return nil
}

// Without returns what the addresses of the holders would be without these holders, the zero Lease for a
// free address. It changes nothing. It passes over a holder that has given up its address meanwhile.
// ErrNone: there is no store.
func (s *Store) Without(ctx context.Context, all []Gone) (map[netip.Addr]Lease, error) {
	left := map[netip.Addr]Lease{}
	err := s.change(ctx, func(l *leases) error {
		there := slices.DeleteFunc(slices.Clone(all), func(gone Gone) bool {
			lease, err := l.current(gone.Address)
			return err != nil || !lease.HeldBy(gone.Holder.Key(s.network))
		})
		if err := errors.Join(l.settle(), l.letGo(there)); err != nil {
			return err
		}
		for _, gone := range all {
			lease, err := l.current(gone.Address)
			if err != nil && !errors.Is(err, ErrNone) {
				return err
			}
			left[gone.Address] = lease
		}
		return errDryRun
	})
	if !errors.Is(err, errDryRun) {
		return nil, err
	}
	return left, nil
}

// indexInOrder puts the leases into the index of attachments, before put comes to them. bbolt keeps what
// a transaction adds in one sorted slice. If 60,000 container IDs came in another order, each would move
// half of the rest.
func (l *leases) indexInOrder(all []Lease) error {
	var keys [][]byte
	for _, lease := range all {
		keys = append(keys, heldKeys(lease)...)
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		if err := l.byAttachment.Put(k, nil); err != nil {
			return err
		}
	}
	return nil
}

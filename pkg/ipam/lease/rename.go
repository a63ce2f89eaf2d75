package lease

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// ClashError says which leases of a network can't become those of another one, as that has
// leases of the same addresses.
type ClashError struct {
	// Clashes are for people, one for each address.
	Clashes []string
}

// Error names all of them.
func (e *ClashError) Error() string { return strings.Join(e.Clashes, "\n") }

// Rename makes the leases of this network those of the other one, and returns how many there
// were. If the other one has a store, this one's leases are put into it: all or, with a
// *ClashError, none. ErrNone: nothing was ever given here.
func (s *Store) Rename(ctx context.Context, to *Store) (n int, err error) {
	if to.path == s.path {
		return 0, fmt.Errorf("network %s has that name already", s.network)
	}
	dir, err := s.lockDir(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, s.none()
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = dir.Close() }()
	there, err := to.Exists()
	if err != nil {
		return 0, err
	}
	// Nobody is at work on it while it goes.
	err = s.open(ctx, false, func(o *opened) error {
		if there {
			if err := s.markHandover(o); err != nil {
				return err
			}
		}
		all, err := s.handoverOf(o)
		n = len(all.leases)
		if err != nil {
			return err
		}
		if !there {
			if err := s.commit(o, (*leases).nameHolders); err != nil {
				return err
			}
			failpoint.Here("holders named")
			return errors.Join(os.Rename(s.path, to.path), dir.Sync())
		}
		if err := to.takeAll(ctx, all); err != nil {
			return err
		}
		failpoint.Here("leases merged")
		return errors.Join(os.Remove(s.path), dir.Sync())
	})
	return n, err
}

// markHandover gives the store something that it is known by, for good. A Rename that was killed
// after the other store had taken it is told by that when it is run again: what was given up since
// must not come back.
func (s *Store) markHandover(o *opened) error {
	return o.db.Update(func(tx *bolt.Tx) error {
		if _, err := s.begin(o, tx); err != nil {
			return err
		}
		meta := tx.Bucket([]byte(bucketMeta))
		if meta.Get([]byte(keyHandover)) != nil {
			return nil
		}
		// No other store of this node is marked by the same process at the same time.
		return meta.Put([]byte(keyHandover), fmt.Appendf(nil, "%d of process %d", time.Now().UnixNano(), os.Getpid()))
	})
}

// handover is what a store hands to another one.
type handover struct {
	// mark is what the store is known by.
	mark []byte
	// leases are those in force. What was held in an earlier boot is given up: the store that
	// takes them may have seen this boot begin, and would not do it.
	leases []Lease
	// now is the time of the store.
	now    time.Time
	known  []Known
	events []Event
}

func (s *Store) handoverOf(o *opened) (handover, error) {
	var c handover
	err := o.db.View(func(tx *bolt.Tx) error {
		l, err := s.begin(o, tx)
		if err != nil {
			return err
		}
		if l.schema > schema {
			return fmt.Errorf("a newer relink wrote the leases of network %s, by schema %d: not all of them would go over. Use the newer one", s.network, l.schema)
		}
		c.now, c.mark = l.now, bytes.Clone(l.meta.Get([]byte(keyHandover)))
		err = l.each(func(lease Lease) error {
			if lease, ok := l.asOfNow(lease); ok {
				c.leases = append(c.leases, lease)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if c.known, err = l.known(); err != nil {
			return err
		}
		return l.eachEvent(func(e Event) { c.events = append(c.events, e) })
	})
	return c, err
}

// takeAll puts all of it into the store, whose time may be another, or nothing: a *ClashError says
// why.
func (s *Store) takeAll(ctx context.Context, c handover) error {
	return s.updateMuch(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		taken := []byte(keyHandover + " " + string(c.mark))
		if l.meta.Get(taken) != nil {
			return nil // By a Rename that was killed.
		}
		return errors.Join(l.takeLeases(c), l.learn(c.known), l.meta.Put(taken, []byte("1")))
	})
}

// takeLeases puts the leases and what happened to them into the store.
func (l *leases) takeLeases(c handover) error {
	var clashes []string
	taken := false
	for _, lease := range c.leases {
		was, err := l.current(lease.Address)
		switch {
		case err != nil && !errors.Is(err, ErrNone):
			return err
		case err == nil && (lease.State == Quarantined || was.isSame(lease)):
			continue // Somebody has it by now, or the two stores are copies.
		case err == nil && was.State != Quarantined:
			clashes = append(clashes, fmt.Sprintf("%s is %s, and %s", lease.Address, lease.Whose(), was.Whose()))
			continue
		}
		if !taken {
			l.noted, taken = append(l.noted, c.events...), true
		}
		l.note(Event{What: TakenIn, Why: "from network " + lease.Network, Then: lease.State}.of(lease, lease.Newest()))
		if err := l.put(lease.inTime(c.now, l.now).named(lease.Network)); err != nil {
			return err
		}
	}
	if len(clashes) > 0 {
		return &ClashError{clashes}
	}
	return nil
}

// nameHolders notes with each holder by which name of the network it was given its address.
func (l *leases) nameHolders() error {
	all, err := l.all()
	for _, lease := range all {
		if len(lease.Holders) > 0 {
			err = errors.Join(err, l.put(lease.named(l.store.network)))
		}
	}
	return err
}

// named returns the lease with the network's name in each holder that has none.
func (l Lease) named(network string) Lease {
	l.Holders = slices.Clone(l.Holders)
	for i := range l.Holders {
		l.Holders[i].Network = cmp.Or(l.Holders[i].Network, network)
	}
	return l
}

// isSame says whether both say the same of who has the address.
func (l Lease) isSame(o Lease) bool {
	return l.State == o.State && l.Owner == o.Owner && slices.EqualFunc(l.Holders, o.Holders, func(a, b Holder) bool {
		return a.ContainerID == b.ContainerID && a.IfName == b.IfName
	})
}

package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// Renamed names the networks in the same directory that this one may have been called before:
// each gave addresses of the same ranges, still has attachments that hold some, and has given
// none since this one began. ErrNone: nothing was ever given.
func (s *Store) Renamed(ctx context.Context) ([]string, error) {
	all, err := Networks(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	if len(all) < 2 {
		return nil, nil
	}
	own, err := s.extent(ctx)
	if err != nil || len(own.known) == 0 {
		return nil, err
	}
	var found []string
	for _, name := range all {
		if name == s.network {
			continue
		}
		other := *s
		other.network, other.path = name, filepath.Join(filepath.Dir(s.path), name+extension)
		other.wait = time.Millisecond // Nobody is to wait for another network.
		its, err := other.extent(ctx)
		if err != nil {
			continue // It is for who looks at that one.
		}
		overlap := slices.ContainsFunc(its.known, func(k Known) bool { return slices.ContainsFunc(own.known, k.overlaps) })
		if overlap && its.held && its.last.Before(own.first) {
			found = append(found, name)
		}
	}
	return found, nil
}

// RenamedRemark says to people what Renamed has found, and what to do.
func RenamedRemark(old, now string) string {
	return fmt.Sprintf("network %s gives addresses of the same ranges as network %s, which has pods and has given none since %s began. "+
		"If %s is its new name, no ADD knows what those pods hold: relink ipam rename %s %s", now, old, now, now, old, now)
}

// extent is what a store was used for.
type extent struct {
	known []Known
	// held says that something is; first and last are when the first and the last of the
	// leases were given that are there.
	held        bool
	first, last time.Time
}

func (s *Store) extent(ctx context.Context) (extent, error) {
	var e extent
	err := s.view(ctx, func(l *leases) (err error) {
		if e.known, err = l.known(); err != nil {
			return err
		}
		return l.each(func(lease Lease) error {
			lease, leased := l.asOfNow(lease)
			if !leased {
				return nil
			}
			e.held = e.held || lease.State == Held
			if since := lease.Newest().Since; !since.IsZero() {
				e.last = latest(e.last, since)
				if e.first.IsZero() || since.Before(e.first) {
					e.first = since
				}
			}
			return nil
		})
	})
	return e, err
}

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
		if err := l.put(lease.inTime(c.now, l.now)); err != nil {
			return err
		}
	}
	if len(clashes) > 0 {
		return &ClashError{clashes}
	}
	return nil
}

// isSame says whether both say the same of who has the address.
func (l Lease) isSame(o Lease) bool {
	return l.State == o.State && l.Owner == o.Owner && slices.EqualFunc(l.Holders, o.Holders, func(a, b Holder) bool {
		return a.ContainerID == b.ContainerID && a.IfName == b.IfName
	})
}

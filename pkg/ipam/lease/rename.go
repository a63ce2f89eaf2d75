package lease

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
// *ClashError, none. One that was killed can be run again. ErrNone: nothing was ever given here;
// ErrMoved: somebody made or took a store meanwhile.
func (s *Store) Rename(ctx context.Context, to *Store) (n int, err error) {
	if to.path == s.path {
		return 0, fmt.Errorf("network %s has that name already", s.network)
	}
	// Nobody is at work on it while it goes.
	err = s.open(ctx, false, func(o *opened) error {
		all, err := s.handoverOf(o)
		if err != nil {
			return err
		}
		n = len(all.leases)
		if all.to != "" && all.to != to.network {
			return isBeingRenamed(s.network, all.to)
		}
		done, err := s.isTaken(ctx, all)
		switch {
		case err != nil:
			return err
		case done:
			return s.remove()
		}
		there, err := to.Exists()
		switch {
		case err != nil:
			return err
		case there:
			return s.merge(ctx, o, to, all)
		}
		return s.move(ctx, o, to)
	})
	return n, err
}

// isTaken says whether a Rename that was killed has put all of it into another store.
func (s *Store) isTaken(ctx context.Context, all handover) (bool, error) {
	if all.to == "" {
		return false, nil
	}
	names, err := Networks(filepath.Dir(s.path))
	for _, name := range names {
		if name == s.network {
			continue
		}
		taken := false
		look := s.beside(name).view(ctx, func(l *leases) error {
			taken = l.hasTaken(all.mark)
			return nil
		})
		if taken {
			return true, nil
		}
		if !errors.Is(look, ErrDamaged) { // Nobody can put anything into it.
			err = errors.Join(err, look)
		}
	}
	return false, err
}

// move gives the file the other name.
func (s *Store) move(ctx context.Context, o *opened, to *Store) error {
	here := *s
	here.evenFrozen = true
	if err := here.commit(o, (*leases).nameHolders); err != nil {
		return err
	}
	failpoint.Here("holders named")
	dir, err := s.lockDir(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if there, err := to.Exists(); there || err != nil {
		return errors.Join(err, fmt.Errorf("network %s has leases since a moment ago: run it again: %w", to.network, ErrMoved))
	}
	return errors.Join(os.Rename(s.path, to.path), dir.Sync())
}

// merge puts the leases into the store of the other name. Until this one is gone it is frozen: what
// changed in it after a kill would be lost.
func (s *Store) merge(ctx context.Context, o *opened, to *Store, all handover) (err error) {
	// What can't work is found before anything is changed.
	if err := s.canMerge(ctx, to); err != nil {
		return err
	}
	if all.mark, err = s.freeze(o, to.network); err != nil {
		return err
	}
	failpoint.Here("store frozen")
	if err := to.takeAll(ctx, all); err != nil {
		return errors.Join(err, s.thaw(ctx, o, to, all.mark))
	}
	failpoint.Here("leases merged")
	return s.remove()
}

// canMerge says why the other store can't take anything.
func (s *Store) canMerge(ctx context.Context, to *Store) error {
	here, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if there, err := os.Stat(to.path); err != nil || os.SameFile(here, there) {
		return errors.Join(err, fmt.Errorf("network %s can't be put into network %s: %s and %s are one file", s.network, to.network, s.path, to.path))
	}
	return to.view(ctx, func(l *leases) error {
		if name := l.frozenFor(); name != "" {
			return isBeingRenamed(to.network, name)
		}
		return nil
	})
}

// remove removes the file.
func (s *Store) remove() error {
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return errors.Join(os.Remove(s.path), dir.Sync())
}

// ErrRenaming says that a store is about to be put into that of another name: a Rename was killed.
var ErrRenaming = errors.New("is being renamed")

func isBeingRenamed(from, to string) error {
	return fmt.Errorf("network %s %w: run relink ipam rename %s %s again", from, ErrRenaming, from, to)
}

// freeze marks the store as one that is being put into that of another name, and gives it something
// that it is known by there. A Rename that was killed after the other store had taken it is told by
// that when it is run again: what was given up since must not come back.
func (s *Store) freeze(o *opened, to string) (mark []byte, err error) {
	err = o.db.Update(func(tx *bolt.Tx) error {
		l, err := s.begin(o, tx)
		if err != nil {
			return err
		}
		if l.frozenFor() != "" { // By a Rename that was killed.
			mark = bytes.Clone(l.meta.Get([]byte(keyHandover)))
			return nil
		}
		// No other store of this node is marked by the same process at the same time.
		mark = fmt.Appendf(nil, "%d of process %d", time.Now().UnixNano(), os.Getpid())
		return errors.Join(l.meta.Put([]byte(keyHandover), mark), l.meta.Put([]byte(keyFrozen), []byte(to)))
	})
	return mark, err
}

// frozenFor is the network whose store is to take this one's leases, empty for none.
func (l *leases) frozenFor() string { return string(l.meta.Get([]byte(keyFrozen))) }

// thaw takes the mark away again, if the other store has not taken anything.
func (s *Store) thaw(ctx context.Context, o *opened, to *Store, mark []byte) error {
	var taken bool
	err := to.view(ctx, func(l *leases) error {
		taken = l.hasTaken(mark)
		return nil
	})
	if taken || err != nil && !errors.Is(err, ErrNone) {
		return isBeingRenamed(s.network, to.network)
	}
	return o.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Delete([]byte(keyFrozen))
	})
}

func takenKey(mark []byte) []byte { return []byte(keyHandover + " " + string(mark)) }

// hasTaken says whether the store has the leases of that which is known by the mark.
func (l *leases) hasTaken(mark []byte) bool { return mark != nil && l.meta.Get(takenKey(mark)) != nil }

// handover is what a store hands to another one.
type handover struct {
	// mark is what the store is known by, and to the network for which it is frozen.
	mark []byte
	to   string
	// leases are those in force. What was held in an earlier boot is given up: the store that
	// takes them may have seen this boot begin, and would not do it.
	leases []Lease
	// now is the time of the store.
	now    time.Time
	known  []Known
	events []Event
	// taken are the marks of the stores that were put into this one.
	taken [][]byte
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
		c.now, c.mark, c.to = l.now, bytes.Clone(l.meta.Get([]byte(keyHandover))), l.frozenFor()
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
		prefix := takenKey(nil)
		cursor := l.meta.Cursor()
		for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
			c.taken = append(c.taken, bytes.Clone(k[len(prefix):]))
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
		err := errors.Join(l.mergeEvents(c.events), l.takeLeases(c), l.learn(c.known))
		for _, mark := range append(c.taken, c.mark) {
			err = errors.Join(err, l.meta.Put(takenKey(mark), []byte("1")))
		}
		return err
	})
}

// takeLeases puts the leases and what happened to them into the store.
func (l *leases) takeLeases(c handover) error {
	var clashes []string
	for _, lease := range c.leases {
		was, err := l.current(lease.Address)
		switch {
		case err != nil && !errors.Is(err, ErrNone):
			return err
		case err == nil && was.isSame(lease): // As in copies of one store.
			if err := l.put(was.with(lease.inTime(c.now, l.now)).named(lease.Network)); err != nil {
				return err
			}
			continue
		case err == nil && lease.State == Quarantined:
			continue // Somebody has it by now.
		case err == nil && was.State != Quarantined:
			clashes = append(clashes, fmt.Sprintf("%s is %s, and %s", lease.Address, lease.Whose(), was.Whose()))
			continue
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

// nameHolders notes with each holder by which name of the network it was given its address. The store
// is going to get another name, and is not put into another one.
func (l *leases) nameHolders() error {
	all, err := l.all()
	err = errors.Join(err, l.meta.Delete([]byte(keyFrozen)))
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

// with returns the lease with what the other one, of the same owner and the same holders, keeps for longer.
func (l Lease) with(o Lease) Lease {
	longer := func(a, b time.Time) bool { return !b.IsZero() && (a.IsZero() || a.After(b)) }
	if o.ByHand && (!l.ByHand || longer(o.ByHandUntil, l.ByHandUntil)) {
		l.ByHand, l.ByHandAt, l.ByHandUntil = true, o.ByHandAt, o.ByHandUntil
	}
	if l.State != Held && longer(o.Until, l.Until) {
		l.Until, l.Why = o.Until, o.Why
	}
	l.Conflict = l.Conflict || o.Conflict
	return l
}

// isSame says whether both say the same of who has the address.
func (l Lease) isSame(o Lease) bool {
	return l.State == o.State && l.Owner == o.Owner && slices.EqualFunc(l.Holders, o.Holders, func(a, b Holder) bool {
		return a.ContainerID == b.ContainerID && a.IfName == b.IfName
	})
}

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

// ClashError says which leases of a network cannot go to another network, because that one has leases of
// the same addresses.
type ClashError struct {
	// Clashes are for people, one for each address.
	Clashes []string
}

// Error names all of them.
func (e *ClashError) Error() string { return strings.Join(e.Clashes, "\n") }

// Rename gives the leases of this network to the other one, and returns how many there were. If the other
// one has a store, the leases are put into it: all of them or, with a *ClashError, none. After a kill,
// run it again. ErrNotLeased: nothing was ever given here; ErrMoved: somebody made or took a store meanwhile.
func (s *Store) Rename(ctx context.Context, target *Store) (n int, err error) {
	if target.path == s.path {
		return 0, fmt.Errorf("network %s has that name already", s.network)
	}
	// The lock keeps everybody from the store while it goes.
	err = s.open(ctx, false, func(o *opened) error {
		content, err := s.handoverOf(o)
		if err != nil {
			return err
		}
		n = len(content.leases)
		if content.target != "" && content.target != target.network {
			return isBeingRenamed(s.network, content.target)
		}
		imported, err := s.isTaken(ctx, content)
		switch {
		case err != nil:
			return err
		case imported:
			return s.remove()
		}
		exists, err := target.Exists()
		switch {
		case err != nil:
			return err
		case exists:
			return s.merge(ctx, o, target, content)
		}
		return s.move(ctx, o, target)
	})
	return n, err
}

// isTaken says whether a Rename that was killed has put everything into another store.
func (s *Store) isTaken(ctx context.Context, content handover) (bool, error) {
	if content.target == "" {
		return false, nil
	}
	names, err := Networks(filepath.Dir(s.path))
	for _, name := range names {
		if name == s.network {
			continue
		}
		found := false
		look := s.sibling(name).view(ctx, func(l *leaseTx) error {
			found = l.hasTaken(content.mark)
			return nil
		})
		if found {
			return true, nil
		}
		if !errors.Is(look, ErrDamaged) { // A damaged store cannot have taken anything.
			err = errors.Join(err, look)
		}
	}
	return false, err
}

// move gives the file the other name.
func (s *Store) move(ctx context.Context, o *opened, target *Store) error {
	frozen := *s
	frozen.allowFrozen = true
	if err := frozen.commit(o, (*leaseTx).nameHolders); err != nil {
		return err
	}
	failpoint.Here("holders named")
	dir, err := s.lockDir(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if exists, err := target.Exists(); exists || err != nil {
		return errors.Join(err, fmt.Errorf("network %s has got leases a moment ago; run the command again: %w", target.network, ErrMoved))
	}
	return errors.Join(os.Rename(s.path, target.path), dir.Sync())
}

// merge puts the leases into the store of the other name. This store is frozen until it is gone: changes in
// it after a kill would be lost.
func (s *Store) merge(ctx context.Context, o *opened, target *Store, content handover) (err error) {
	// Find what cannot work before anything is changed.
	if err := s.canMerge(ctx, o, target); err != nil {
		return err
	}
	if content.mark, err = s.freeze(o, target.network); err != nil {
		return err
	}
	failpoint.Here("store frozen")
	if err := target.takeAll(ctx, content); err != nil {
		return errors.Join(err, s.thaw(ctx, o, target, content.mark))
	}
	failpoint.Here("leases merged")
	return s.remove()
}

// HasPools says whether the network has to do with pools. ErrNotLeased: nothing was ever given.
func (s *Store) HasPools(ctx context.Context) (found bool, err error) {
	err = s.view(ctx, func(l *leaseTx) error { found = l.hasPools(); return nil })
	return found, err
}

// hasPools says whether the open store has to do with pools.
func (s *Store) hasPools(o *opened) (found bool, err error) {
	err = o.db.View(func(tx *bolt.Tx) error {
		l, err := s.begin(o, tx)
		found = err == nil && l.hasPools()
		return err
	})
	return found, err
}

func (l *leaseTx) hasPools() bool { return len(l.meta.Get([]byte(keyID))) > 0 }

// canMerge says why the other store cannot take anything.
func (s *Store) canMerge(ctx context.Context, o *opened, target *Store) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if targetInfo, err := os.Stat(target.path); err != nil || os.SameFile(info, targetInfo) {
		return errors.Join(err, fmt.Errorf("network %s cannot be put into network %s: %s and %s are one file", s.network, target.network, s.path, target.path))
	}
	if found, err := s.hasPools(o); err != nil || found {
		return errors.Join(err, fmt.Errorf("network %s cannot be put into network %s: it has addresses of pools, which belong to the store %s; drain the node, and remove the store", s.network, target.network, s.path))
	}
	return target.view(ctx, func(l *leaseTx) error {
		if name := l.frozenFor(); name != "" {
			return isBeingRenamed(target.network, name)
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

// ErrRenaming says that a Rename of the network was killed: its store is about to go into another one.
var ErrRenaming = errors.New("is being renamed")

func isBeingRenamed(network, newName string) error {
	return fmt.Errorf("network %s %w: run relink ipam rename %s %s again", network, ErrRenaming, network, newName)
}

// freeze marks the store: it is being put into the store of another name. The mark is noted there, too. So
// when a Rename was killed and is run again, it knows whether the other store has taken the leases. What was
// given up since then must not come back.
func (s *Store) freeze(o *opened, target string) (mark []byte, err error) {
	err = o.db.Update(func(tx *bolt.Tx) error {
		l, err := s.begin(o, tx)
		if err != nil {
			return err
		}
		if l.frozenFor() != "" { // A Rename that was killed left it so.
			mark = bytes.Clone(l.meta.Get([]byte(keyHandover)))
			return nil
		}
		// The time and the process make the mark unique on this node.
		mark = fmt.Appendf(nil, "%d of process %d", time.Now().UnixNano(), os.Getpid())
		return errors.Join(l.meta.Put([]byte(keyHandover), mark), l.meta.Put([]byte(keyFrozen), []byte(target)))
	})
	return mark, err
}

// frozenFor is the network that will get the leases of this store, empty for none.
func (l *leaseTx) frozenFor() string { return string(l.meta.Get([]byte(keyFrozen))) }

// thaw removes the mark again, if the other store has not taken anything.
func (s *Store) thaw(ctx context.Context, o *opened, target *Store, mark []byte) error {
	var found bool
	err := target.view(ctx, func(l *leaseTx) error {
		found = l.hasTaken(mark)
		return nil
	})
	if found || err != nil && !errors.Is(err, ErrNotLeased) {
		return isBeingRenamed(s.network, target.network)
	}
	return o.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Delete([]byte(keyFrozen))
	})
}

func takenKey(mark []byte) []byte { return []byte(keyHandover + " " + string(mark)) }

// hasTaken says whether the store has taken the leases of the store with the mark.
func (l *leaseTx) hasTaken(mark []byte) bool { return mark != nil && l.meta.Get(takenKey(mark)) != nil }

// handover is what a store gives to another one.
type handover struct {
	// mark is the mark of the store, and target the network for which it is frozen.
	mark   []byte
	target string
	// leases are those in force. What was held in an earlier boot is given up already: the other store may
	// have seen this boot begin, and would not do it.
	leases []Lease
	// instant is the time of the store.
	instant   time.Time
	requested []RequestedRanges
	events    []Event
	// imported are the marks of the stores that were put into this one.
	imported [][]byte
}

func (s *Store) handoverOf(o *opened) (handover, error) {
	var c handover
	err := o.db.View(func(tx *bolt.Tx) error {
		l, err := s.begin(o, tx)
		if err != nil {
			return err
		}
		c.instant, c.mark, c.target = l.instant, bytes.Clone(l.meta.Get([]byte(keyHandover))), l.frozenFor()
		err = l.each(func(lease Lease) error {
			if lease, ok := l.asCurrent(lease); ok {
				c.leases = append(c.leases, lease)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if c.requested, err = l.requestedRanges(); err != nil {
			return err
		}
		prefix := takenKey(nil)
		cursor := l.meta.Cursor()
		for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
			c.imported = append(c.imported, bytes.Clone(k[len(prefix):]))
		}
		return l.eachEvent(func(e Event) { c.events = append(c.events, e) })
	})
	return c, err
}

// takeAll puts everything into the store, which may have another time. If it cannot, it puts in nothing, and a
// *ClashError says why.
func (s *Store) takeAll(ctx context.Context, c handover) error {
	return s.updateMuch(ctx, func(l *leaseTx) error {
		if err := l.freeExpired(); err != nil {
			return err
		}
		err := errors.Join(l.mergeEvents(c.events), l.takeLeases(c), l.mergeRequestedRanges(c.requested))
		for _, mark := range append(c.imported, c.mark) {
			err = errors.Join(err, l.meta.Put(takenKey(mark), []byte("1")))
		}
		return err
	})
}

// takeLeases puts the leases into the store, with an event for each.
func (l *leaseTx) takeLeases(c handover) error {
	var clashes []string
	for _, lease := range c.leases {
		previous, err := l.current(lease.Address)
		switch {
		case err != nil && !errors.Is(err, ErrNotLeased):
			return err
		case err == nil && previous.isSame(lease): // The stores are copies of one.
			if err := l.put(previous.with(lease.withTimeSet(c.instant, l.instant)).named(lease.Network)); err != nil {
				return err
			}
			continue
		case err == nil && lease.State == Quarantined:
			continue // The address has another lease by now.
		case err == nil && previous.State != Quarantined:
			clashes = append(clashes, fmt.Sprintf("%s is %s, and %s", lease.Address, lease.Describe(), previous.Describe()))
			continue
		}
		l.addEvent(Event{Type: LeaseImported, Reason: "from network " + lease.Network, StateAfter: lease.State}.withLease(lease, lease.Newest()))
		if err := l.put(lease.withTimeSet(c.instant, l.instant).named(lease.Network)); err != nil {
			return err
		}
	}
	if len(clashes) > 0 {
		return &ClashError{clashes}
	}
	return nil
}

// nameHolders notes with each holder the name that the network had when the holder got its address. The store
// is about to get another name.
func (l *leaseTx) nameHolders() error {
	leases, err := l.all()
	err = errors.Join(err, l.meta.Delete([]byte(keyFrozen)))
	for _, lease := range leases {
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

// with returns the lease with the longer reservation of the two. Both are of the same owner and the same holders.
func (l Lease) with(o Lease) Lease {
	longer := func(a, b time.Time) bool { return !b.IsZero() && (a.IsZero() || a.After(b)) }
	if o.ByHand && (!l.ByHand || longer(o.ByHandUntil, l.ByHandUntil)) {
		l.ByHand, l.ByHandAt, l.ByHandUntil = true, o.ByHandAt, o.ByHandUntil
	}
	if l.State != Held && longer(o.Until, l.Until) {
		l.Until, l.Reason = o.Until, o.Reason
	}
	l.Conflict = l.Conflict || o.Conflict
	return l
}

// isSame says whether both leases have the same owner and the same holders.
func (l Lease) isSame(o Lease) bool {
	return l.State == o.State && l.Owner == o.Owner && slices.EqualFunc(l.Holders, o.Holders, func(a, b Holder) bool {
		return a.ContainerID == b.ContainerID && a.IfName == b.IfName
	})
}

package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Verify says where the indices do not agree with the leases: an index that lacks a lease or has one too
// many, a run that has a gap or is too short. errors.Is matches ErrDamaged; ErrNotLeased: nothing was ever given.
func (s *Store) Verify(ctx context.Context) error {
	err := s.view(ctx, (*leaseTx).verify)
	if err == nil || errors.Is(err, ErrNotLeased) || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("verify: %w", err)
}

// verify builds the indices anew and compares.
func (l *leaseTx) verify() error {
	runs := index{}
	want := map[*bolt.Bucket]index{l.byAttachment: {}, l.byOwner: {}, l.ends: {}, l.runs: runs}
	var run Span
	err := l.byAddress.ForEach(func(key, b []byte) error {
		lease, err := l.decode(key, b)
		if err != nil {
			return err
		}
		if !bytes.Equal(key, addressKey(lease.Address)) {
			return damaged("the lease of %s is kept as that of %s", lease.Address, addressOf(key))
		}
		if (lease.State == Held) != (len(lease.Holders) > 0) {
			return damaged("the lease of %s is %s and has %d holders", lease.Address, lease.State, len(lease.Holders))
		}
		for _, e := range l.entries(lease) {
			want[e.index][string(e.key)] = nil
		}
		if !run.Last.IsValid() || run.Last.Next() != lease.Address {
			run.First = lease.Address
		}
		run.Last = lease.Address
		runs[string(addressKey(run.First))] = addressKey(run.Last)
		return nil
	})
	buckets := l.buckets()
	for _, name := range []string{bucketAttachments, bucketOwners, bucketEnds, bucketRuns} {
		bucket := *buckets[name]
		err = errors.Join(err, want[bucket].compare(name, bucket))
	}
	return errors.Join(err, l.verifyPools())
}

// verifyPools reads everything about pools. Each grant is of a pool whose layout is known.
func (l *leaseTx) verifyPools() error {
	_, err := l.namedPools()
	layouts := map[string]bool{}
	for _, name := range l.allPools(nil) {
		layout, wrong := l.layout(name)
		if wrong == nil && layout.Name != name {
			wrong = damaged("the layout of pool %s is kept as that of %s", layout.Name, name)
		}
		err, layouts[name] = errors.Join(err, wrong), true
	}
	return errors.Join(err, l.grants.ForEach(func(key, b []byte) error {
		g, _, err := decodeGrant(key, b)
		if err == nil && !layouts[g.Pool] {
			err = damaged("grant %s is of a pool that the store does not know", g.Name())
		}
		return err
	}))
}

// index is what a bucket should have.
type index map[string][]byte

func (i index) compare(name string, b *bolt.Bucket) error {
	found := 0
	err := b.ForEach(func(k, v []byte) error {
		want, ok := i[string(k)]
		if !ok || !bytes.Equal(want, v) {
			return damaged("bucket %s has %x: %x, which belongs to no lease", name, k, v)
		}
		found++
		return nil
	})
	if err == nil && found < len(i) {
		err = damaged("bucket %s lacks %d of %d entries", name, len(i)-found, len(i))
	}
	return err
}

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
	attachments, owners, ends, runs := index{}, index{}, index{}, index{}
	var run Span
	err := l.byAddress.ForEach(func(key, b []byte) error {
		lease, err := l.decode(b)
		if err != nil {
			return err
		}
		if !bytes.Equal(key, addressKey(lease.Address)) {
			return fmt.Errorf("the lease of %s is kept as that of %s: %w", lease.Address, addressOf(key), ErrDamaged)
		}
		for _, k := range heldKeys(lease) {
			attachments.add(k)
		}
		if (lease.State == Held) != (len(lease.Holders) > 0) {
			return fmt.Errorf("the lease of %s is %s and has %d holders: %w", lease.Address, lease.State, len(lease.Holders), ErrDamaged)
		}
		owners.add(ownedKey(lease))
		ends.add(endKey(lease))
		if !run.Last.IsValid() || run.Last.Next() != lease.Address {
			run.First = lease.Address
		}
		run.Last = lease.Address
		runs[string(addressKey(run.First))] = addressKey(run.Last)
		return nil
	})
	return errors.Join(err,
		attachments.compare(bucketAttachments, l.byAttachment), owners.compare(bucketOwners, l.byOwner),
		ends.compare(bucketEnds, l.ends), runs.compare(bucketRuns, l.runs), l.verifyPools(), l.verifyTerms())
}

// verifyPools reads everything about pools. Each grant is of a pool whose layout is known.
func (l *leaseTx) verifyPools() error {
	_, err := l.namedPools()
	layouts := map[string]bool{}
	for _, name := range l.allPools(nil) {
		layout, wrong := l.layout(name)
		if wrong == nil && layout.Name != name {
			wrong = fmt.Errorf("the layout of pool %s is kept as that of %s: %w", layout.Name, name, ErrDamaged)
		}
		err, layouts[name] = errors.Join(err, wrong), true
	}
	return errors.Join(err, l.grants.ForEach(func(key, b []byte) error {
		g, _, err := decodeGrant(key, b)
		if err == nil && !layouts[g.Pool] {
			err = fmt.Errorf("grant %s is of a pool that the store does not know: %w", g.Name(), ErrDamaged)
		}
		return err
	}))
}

// index is what a bucket should have.
type index map[string][]byte

// add adds a key without a value, nil for none.
func (i index) add(key []byte) {
	if key != nil {
		i[string(key)] = nil
	}
}

func (i index) compare(name string, b *bolt.Bucket) error {
	found := 0
	err := b.ForEach(func(k, v []byte) error {
		want, ok := i[string(k)]
		if !ok || !bytes.Equal(want, v) {
			return fmt.Errorf("bucket %s has %x: %x, which belongs to no lease: %w", name, k, v, ErrDamaged)
		}
		found++
		return nil
	})
	if err == nil && found < len(i) {
		err = fmt.Errorf("bucket %s lacks %d of %d entries: %w", name, len(i)-found, len(i), ErrDamaged)
	}
	return err
}

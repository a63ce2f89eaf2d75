package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
)

// leaseTx are the leases of a network in a transaction, and the indices to find them.
type leaseTx struct {
	store   *Store
	instant time.Time
	// makeRoom allocates what later changes need to give addresses up.
	makeRoom func() error
	// startMark is the boot, and the time since that boot, at which instant was read.
	startMark clockMark
	// newEvents are the events of this change.
	newEvents []Event

	meta, byAddress, byAttachment, byOwner, runs, ends, last, events, layouts, grants *bolt.Bucket
}

// buckets are the buckets by their names.
func (l *leaseTx) buckets() map[string]**bolt.Bucket {
	return map[string]**bolt.Bucket{
		bucketMeta: &l.meta, bucketLeases: &l.byAddress, bucketAttachments: &l.byAttachment, bucketOwners: &l.byOwner,
		bucketRuns: &l.runs, bucketEnds: &l.ends, bucketLast: &l.last, bucketEvents: &l.events,
		bucketPools: &l.layouts, bucketGrants: &l.grants,
	}
}

// decode reads the lease that the store has under the key.
func (l *leaseTx) decode(key, b []byte) (Lease, error) {
	lease, err := decodeLease(b)
	if err == nil && lease.isFree() {
		err = damaged("the lease has no state")
	}
	if err != nil {
		return Lease{}, fmt.Errorf("%s: %w", addressOf(key), err)
	}
	lease.Network = l.store.network
	return lease, nil
}

// get returns the lease of the address as it is stored, the zero Lease if the address is free.
func (l *leaseTx) get(a netip.Addr) (Lease, error) {
	key := addressKey(a)
	if b := l.byAddress.Get(key); b != nil {
		return l.decode(key, b)
	}
	return Lease{}, nil
}

// put stores the lease under its address.
func (l *leaseTx) put(lease Lease) error {
	previous, err := l.get(lease.Address)
	if err != nil {
		return err
	}
	switch _, occupied := l.run(lease.Address); {
	case !previous.isFree():
		err = l.unindex(previous)
	case occupied: // With one wrong byte in its key, a lease is not found.
		err = damaged("the index of runs has %s as taken, which has no lease", lease.Address)
	default:
		err = l.occupy(lease.Address)
	}
	if err != nil {
		return err
	}
	err = l.byAddress.Put(addressKey(lease.Address), encodeLease(lease))
	for _, e := range l.entries(lease) {
		err = errors.Join(err, e.index.Put(e.key, nil))
	}
	return err
}

// remove makes the address of the lease free.
func (l *leaseTx) remove(lease Lease) error {
	return errors.Join(l.unindex(lease), l.byAddress.Delete(addressKey(lease.Address)), l.vacate(lease.Address))
}

func (l *leaseTx) unindex(lease Lease) (err error) {
	for _, e := range l.entries(lease) {
		err = errors.Join(err, e.index.Delete(e.key))
	}
	return err
}

// entry is what a lease has in an index. The key ends with the lease's address.
type entry struct {
	index *bolt.Bucket
	key   []byte
}

// entries returns what the lease has in the indices.
func (l *leaseTx) entries(lease Lease) (entries []entry) {
	for _, h := range lease.Holders {
		entries = append(entries, entry{l.byAttachment, textKey(h.ContainerID, h.IfName)})
	}
	if lease.State != Quarantined && lease.hasOwner() {
		entries = append(entries, entry{l.byOwner, ownerKey(lease.Owner)})
	}
	if !lease.Until.IsZero() {
		entries = append(entries, entry{l.ends, timeKey(lease.Until)})
	}
	for i := range entries {
		entries[i].key = append(entries[i].key, addressKey(lease.Address)...)
	}
	return entries
}

// heldBy returns what the attachment holds.
func (l *leaseTx) heldBy(a attachment.Key) ([]Lease, error) {
	return l.findByPrefix(l.byAttachment, textKey(a.ContainerID, a.IfName))
}

// ownedBy returns what is held for the owner or reserved for it.
func (l *leaseTx) ownedBy(o attachment.Owner) ([]Lease, error) {
	return l.findByPrefix(l.byOwner, ownerKey(o))
}

// findByPrefix returns the leases of the index whose keys begin with prefix.
func (l *leaseTx) findByPrefix(index *bolt.Bucket, prefix []byte) ([]Lease, error) {
	var leases []Lease
	cursor := index.Cursor()
	for k, _ := cursor.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
		lease, err := l.getIndexed(index, k)
		if err != nil {
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// getIndexed returns the lease that a key of an index names. ErrDamaged: the lease would not have this key. A key with
// one wrong byte names somebody else's lease.
func (l *leaseTx) getIndexed(index *bolt.Bucket, key []byte) (Lease, error) {
	a := indexedAddress(key)
	lease, err := l.get(a)
	switch {
	case err != nil:
		return Lease{}, err
	case lease.isFree():
		return Lease{}, damaged("an index names %s, which has no lease", a)
	case !slices.ContainsFunc(l.entries(lease), func(e entry) bool { return e.index == index && bytes.Equal(e.key, key) }):
		return Lease{}, damaged("an index names %s, whose lease says otherwise", a)
	}
	return lease, nil
}

// indexedAddress returns the address at the end of a key of an index.
func indexedAddress(key []byte) netip.Addr { return addressOf(key[max(0, len(key)-net.IPv6len):]) }

// each calls f for every lease, in the order of the addresses.
func (l *leaseTx) each(f func(Lease) error) error {
	return l.byAddress.ForEach(func(key, b []byte) error {
		lease, err := l.decode(key, b)
		if err != nil {
			return err
		}
		return f(lease)
	})
}

// eachCurrent calls f for every lease as the next change will find it.
func (l *leaseTx) eachCurrent(f func(Lease) error) error {
	return l.each(func(lease Lease) error {
		if lease = l.asCurrent(lease); lease.isFree() {
			return nil
		}
		return f(lease)
	})
}

// endedLeases returns at most limit leases that have ended, the first to end first.
func (l *leaseTx) endedLeases(limit int) ([]Lease, error) {
	var leases []Lease
	cursor := l.ends.Cursor()
	bound := timeKey(l.instant)
	for k, _ := cursor.First(); k != nil && len(leases) < limit && bytes.Compare(k[:len(bound)], bound) <= 0; k, _ = cursor.Next() {
		lease, err := l.getIndexed(l.ends, k)
		if err != nil {
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// hasEnded says whether the lease has ended and only waits to be cleared away.
func (l *leaseTx) hasEnded(lease Lease) bool {
	return !lease.Until.IsZero() && !lease.Until.After(l.instant)
}

// lastGiven returns the last address that was given of the range set of that number.
func (l *leaseTx) lastGiven(set int) netip.Addr {
	return addressOf(l.last.Get([]byte(strconv.Itoa(set))))
}

func (l *leaseTx) setLastGiven(set int, a netip.Addr) error {
	return l.last.Put([]byte(strconv.Itoa(set)), addressKey(a))
}

// addressKey orders IPv4 addresses as numbers, and apart from all IPv6 ones.
func addressKey(a netip.Addr) []byte {
	b := a.As16()
	return b[:]
}

func addressOf(key []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(key)
	return a.Unmap()
}

// ordinalText is the number, empty for none.
func ordinalText(o attachment.Ordinal) string {
	number, ok := o.Number()
	if !ok {
		return ""
	}
	return strconv.Itoa(number)
}

func ownerKey(o attachment.Owner) []byte {
	return textKey(o.Group, o.Kind, o.Namespace, o.Name, o.UID, ordinalText(o.Ordinal))
}

func timeKey(t time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())) }

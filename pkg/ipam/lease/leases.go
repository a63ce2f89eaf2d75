package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
	// startMark is the boot, and the time since, at which now was read.
	startMark clockMark
	// newEvents are the events of this change.
	newEvents []Event

	meta, byAddress, byAttachment, byOwner, runs, ends, last, ranges, events, layouts, grants, terms *bolt.Bucket
}

// buckets are the buckets by their names.
func (l *leaseTx) buckets() map[string]**bolt.Bucket {
	return map[string]**bolt.Bucket{
		bucketMeta: &l.meta, bucketLeases: &l.byAddress, bucketAttachments: &l.byAttachment, bucketOwners: &l.byOwner,
		bucketRuns: &l.runs, bucketEnds: &l.ends, bucketLast: &l.last, bucketRanges: &l.ranges, bucketEvents: &l.events,
		bucketPools: &l.layouts, bucketGrants: &l.grants, bucketTerms: &l.terms,
	}
}

// decode reads a lease as the store has it.
func (l *leaseTx) decode(b []byte) (Lease, error) {
	lease, err := decodeLease(b)
	lease.Network = l.store.network
	return lease, err
}

// get returns the lease of the address, if it is not free.
func (l *leaseTx) get(a netip.Addr) (Lease, bool, error) {
	b := l.byAddress.Get(addressKey(a))
	if b == nil {
		return Lease{}, false, nil
	}
	lease, err := l.decode(b)
	if err != nil {
		return Lease{}, false, l.decodeError(a, err)
	}
	return lease, true, nil
}

// decodeError says that the lease of the address cannot be read, and in which store.
func (l *leaseTx) decodeError(a netip.Addr, err error) error {
	return fmt.Errorf("store %s: %s: %w", l.store.path, a, err)
}

// put stores the lease under its address.
func (l *leaseTx) put(lease Lease) error {
	previous, leased, err := l.get(lease.Address)
	if err != nil {
		return err
	}
	key := addressKey(lease.Address)
	lease.Owner = storable(lease.Owner)
	switch _, occupied := l.run(lease.Address); {
	case leased:
		err = l.unindex(previous)
	case occupied: // With one wrong byte in its key, a lease is not found.
		err = fmt.Errorf("store %s: %w: the index of runs has %s as taken, which has no lease", l.store.path, ErrDamaged, lease.Address)
	default:
		err = l.occupy(lease.Address)
	}
	if err != nil {
		return err
	}
	errs := []error{l.byAddress.Put(key, encodeLease(lease))}
	for _, k := range heldKeys(lease) {
		errs = append(errs, l.byAttachment.Put(k, nil))
	}
	if k := ownedKey(lease); k != nil {
		errs = append(errs, l.byOwner.Put(k, nil))
	}
	if k := endKey(lease); k != nil {
		errs = append(errs, l.ends.Put(k, nil))
	}
	return errors.Join(errs...)
}

// remove makes the address of the lease free.
func (l *leaseTx) remove(lease Lease) error {
	return errors.Join(l.unindex(lease), l.byAddress.Delete(addressKey(lease.Address)), l.vacate(lease.Address))
}

func (l *leaseTx) unindex(lease Lease) error {
	var errs []error
	for _, k := range heldKeys(lease) {
		errs = append(errs, l.byAttachment.Delete(k))
	}
	if k := ownedKey(lease); k != nil {
		errs = append(errs, l.byOwner.Delete(k))
	}
	if k := endKey(lease); k != nil {
		errs = append(errs, l.ends.Delete(k))
	}
	return errors.Join(errs...)
}

// heldBy returns what the attachment holds.
func (l *leaseTx) heldBy(a attachment.Key) ([]Lease, error) {
	return l.findByPrefix(l.byAttachment, textKey(a.ContainerID, a.IfName), heldKeys)
}

// ownedBy returns what is held for the owner or reserved for it.
func (l *leaseTx) ownedBy(o attachment.Owner) ([]Lease, error) {
	return l.findByPrefix(l.byOwner, ownerKey(o), func(lease Lease) [][]byte { return [][]byte{ownedKey(lease)} })
}

// findByPrefix returns the leases of the index whose keys begin with prefix. keys are those of a lease in this index.
func (l *leaseTx) findByPrefix(index *bolt.Bucket, prefix []byte, keys func(Lease) [][]byte) ([]Lease, error) {
	var leases []Lease
	cursor := index.Cursor()
	for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
		lease, err := l.getIndexed(k, addressOf(k[len(prefix):]), keys)
		if err != nil {
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// each calls f for every lease, in the order of the addresses.
func (l *leaseTx) each(f func(Lease) error) error {
	return l.byAddress.ForEach(func(key, b []byte) error {
		lease, err := l.decode(b)
		if err != nil {
			return l.decodeError(addressOf(key), err)
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
		lease, err := l.leaseOfEndKey(k)
		if err != nil {
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// leaseOfEndKey returns the lease that the key in bucketEnds names. ErrDamaged: that lease does not end then.
func (l *leaseTx) leaseOfEndKey(key []byte) (Lease, error) {
	return l.getIndexed(key, addressOf(key[len(timeKey(l.instant)):]), func(lease Lease) [][]byte { return [][]byte{endKey(lease)} })
}

// getIndexed returns the lease of the address that a key of an index names. ErrDamaged: the lease would not have this key. A key with
// one wrong byte names somebody else's lease.
func (l *leaseTx) getIndexed(key []byte, a netip.Addr, keys func(Lease) [][]byte) (Lease, error) {
	lease, leased, err := l.get(a)
	switch {
	case err != nil:
		return Lease{}, err
	case !leased:
		return Lease{}, fmt.Errorf("store %s: %w: an index names %s, which has no lease", l.store.path, ErrDamaged, a)
	case !slices.ContainsFunc(keys(lease), func(k []byte) bool { return bytes.Equal(k, key) }):
		return Lease{}, fmt.Errorf("store %s: %w: an index names %s, whose lease says otherwise", l.store.path, ErrDamaged, a)
	}
	return lease, nil
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

// textKey writes texts so that no two lists of them look alike. No list looks like the beginning of another
// one of as many texts.
func textKey(texts ...string) []byte {
	var key []byte
	for _, t := range texts {
		key = binary.BigEndian.AppendUint32(key, uint32(len(t)))
		key = append(key, t...)
	}
	return key
}

// storable returns the owner as it will be read again: a text in JSON is always UTF-8. Otherwise the index
// would have another owner than the lease.
func storable(o attachment.Owner) attachment.Owner {
	for _, text := range []*string{&o.Group, &o.Kind, &o.Namespace, &o.Name, &o.UID} {
		*text = string([]rune(*text))
	}
	return o
}

func ownerKey(o attachment.Owner) []byte {
	return textKey(o.Group, o.Kind, o.Namespace, o.Name, o.UID, ordinalText(o.Ordinal))
}

func timeKey(t time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())) }

func timeOf(key []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(key))).UTC() }

// heldKeys are the keys of a lease in bucketAttachments, one for each holder.
func heldKeys(l Lease) [][]byte {
	var keys [][]byte
	for _, h := range l.Holders {
		keys = append(keys, append(textKey(h.ContainerID, h.IfName), addressKey(l.Address)...))
	}
	return keys
}

// ownedKey is the key of a lease in bucketOwners, nil for none.
func ownedKey(lease Lease) []byte {
	if lease.State == Quarantined || !lease.hasOwner() {
		return nil
	}
	return append(ownerKey(lease.Owner), addressKey(lease.Address)...)
}

func endKey(l Lease) []byte {
	if l.Until.IsZero() {
		return nil
	}
	return append(timeKey(l.Until), addressKey(l.Address)...)
}

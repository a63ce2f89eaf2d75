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

// leases are the leases of a network in a transaction, and the indices to find them.
type leases struct {
	store *Store
	// schema is that of the store. It is 1 only while a store is read.
	schema int
	now    time.Time
	// begun is the boot, and the time since, at which now was read.
	begun clockMark
	// noted are the events of this change.
	noted []Event

	meta, byAddress, byAttachment, byOwner, runs, ends, last, ranges, events *bolt.Bucket
	// layouts and grants are nil in a store without pools, terms in one whose pools have no terms. tx makes them.
	layouts, grants, terms *bolt.Bucket
	tx                     *bolt.Tx
}

// buckets are the buckets by their names.
func (l *leases) buckets() map[string]**bolt.Bucket {
	return map[string]**bolt.Bucket{
		bucketMeta: &l.meta, bucketLeases: &l.byAddress, bucketAttachments: &l.byAttachment, bucketOwners: &l.byOwner,
		bucketRuns: &l.runs, bucketEnds: &l.ends, bucketLast: &l.last, bucketRanges: &l.ranges, bucketEvents: &l.events,
	}
}

// decode reads a lease as the store has it.
func (l *leases) decode(b []byte) (Lease, error) {
	decode := decodeLease
	switch l.schema {
	case schemaV1:
		decode = decodeLeaseV1
	case schemaV2:
		decode = decodeLeaseV2
	}
	lease, err := decode(b)
	lease.Network = l.store.network
	return lease, err
}

// get returns the lease of the address, if it is not free.
func (l *leases) get(a netip.Addr) (Lease, bool, error) {
	b := l.byAddress.Get(addressKey(a))
	if b == nil {
		return Lease{}, false, nil
	}
	lease, err := l.decode(b)
	if err != nil {
		return Lease{}, false, l.unreadable(a, err)
	}
	return lease, true, nil
}

// unreadable says that the lease of the address cannot be read, and in which store.
func (l *leases) unreadable(a netip.Addr, err error) error {
	return fmt.Errorf("store %s: %s: %w", l.store.path, a, err)
}

// put stores the lease under its address.
func (l *leases) put(lease Lease) error {
	was, leased, err := l.get(lease.Address)
	if err != nil {
		return err
	}
	key := addressKey(lease.Address)
	lease.Owner = storable(lease.Owner)
	switch _, taken := l.run(lease.Address); {
	case leased:
		err = l.unindex(was)
	case taken: // With one wrong byte in its key, a lease is not found.
		err = fmt.Errorf("store %s: %w: the index of runs has %s as taken, which has no lease", l.store.path, ErrDamaged, lease.Address)
	default:
		err = l.occupy(lease.Address)
	}
	if err != nil {
		return err
	}
	b, err := encodeLease(lease)
	if err != nil {
		return err
	}
	errs := []error{l.byAddress.Put(key, b)}
	for _, k := range heldKeys(lease) {
		errs = append(errs, l.byAttachment.Put(k, nil))
	}
	if k := l.ownedKey(lease); k != nil {
		errs = append(errs, l.byOwner.Put(k, nil))
	}
	if k := endKey(lease); k != nil {
		errs = append(errs, l.ends.Put(k, nil))
	}
	return errors.Join(errs...)
}

// remove makes the address of the lease free.
func (l *leases) remove(lease Lease) error {
	return errors.Join(l.unindex(lease), l.byAddress.Delete(addressKey(lease.Address)), l.vacate(lease.Address))
}

func (l *leases) unindex(lease Lease) error {
	var errs []error
	for _, k := range heldKeys(lease) {
		errs = append(errs, l.byAttachment.Delete(k))
	}
	if k := l.ownedKey(lease); k != nil {
		errs = append(errs, l.byOwner.Delete(k))
	}
	if k := endKey(lease); k != nil {
		errs = append(errs, l.ends.Delete(k))
	}
	return errors.Join(errs...)
}

// heldBy returns what the attachment holds.
func (l *leases) heldBy(a attachment.Key) ([]Lease, error) {
	return l.found(l.byAttachment, textKey(a.ContainerID, a.IfName), heldKeys)
}

// ownedBy returns what is held for the owner or reserved for it.
func (l *leases) ownedBy(o attachment.Owner) ([]Lease, error) {
	return l.found(l.byOwner, ownerKey(o), func(lease Lease) [][]byte { return [][]byte{l.ownedKey(lease)} })
}

// found returns the leases of the index whose keys begin with prefix. keys are those of a lease in this index.
func (l *leases) found(index *bolt.Bucket, prefix []byte, keys func(Lease) [][]byte) ([]Lease, error) {
	var all []Lease
	cursor := index.Cursor()
	for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = cursor.Next() {
		lease, err := l.named(k, addressOf(k[len(prefix):]), keys)
		if err != nil {
			return nil, err
		}
		all = append(all, lease)
	}
	return all, nil
}

// each calls f for every lease, in the order of the addresses.
func (l *leases) each(f func(Lease) error) error {
	return l.byAddress.ForEach(func(key, b []byte) error {
		lease, err := l.decode(b)
		if err != nil {
			return l.unreadable(addressOf(key), err)
		}
		return f(lease)
	})
}

// ended returns at most limit leases that have ended, the first to end first.
func (l *leases) ended(limit int) ([]Lease, error) {
	var all []Lease
	cursor := l.ends.Cursor()
	now := timeKey(l.now)
	for k, _ := cursor.First(); k != nil && len(all) < limit && bytes.Compare(k[:len(now)], now) <= 0; k, _ = cursor.Next() {
		lease, err := l.ending(k)
		if err != nil {
			return nil, err
		}
		all = append(all, lease)
	}
	return all, nil
}

// ending returns the lease that the key in bucketEnds names. ErrDamaged: that lease does not end then.
func (l *leases) ending(key []byte) (Lease, error) {
	return l.named(key, addressOf(key[len(timeKey(l.now)):]), func(lease Lease) [][]byte { return [][]byte{endKey(lease)} })
}

// named returns the lease of the address that a key of an index names. ErrDamaged: the lease would not have this key. A key with
// one wrong byte names somebody else's lease.
func (l *leases) named(key []byte, a netip.Addr, keys func(Lease) [][]byte) (Lease, error) {
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

// over says whether the lease has ended and only waits to be cleared away.
func (l *leases) over(lease Lease) bool {
	return !lease.Until.IsZero() && !lease.Until.After(l.now)
}

// lastGiven returns the last address that was given of the range set of that number.
func (l *leases) lastGiven(set int) netip.Addr {
	return addressOf(l.last.Get([]byte(strconv.Itoa(set))))
}

func (l *leases) setLastGiven(set int, a netip.Addr) error {
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

// ownerKeyV2 is the key in the schemas before 3.
func ownerKeyV2(o attachment.Owner) []byte { return textKey(o.Kind, o.Namespace, o.Name, o.UID) }

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
func (l *leases) ownedKey(lease Lease) []byte {
	if lease.State == Quarantined || !lease.owned() {
		return nil
	}
	key := ownerKey
	if l.schema < schema {
		key = ownerKeyV2
	}
	return append(key(lease.Owner), addressKey(lease.Address)...)
}

func endKey(l Lease) []byte {
	if l.Until.IsZero() {
		return nil
	}
	return append(timeKey(l.Until), addressKey(l.Address)...)
}

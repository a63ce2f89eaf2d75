package lease

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// The schema of a store; docs/ipam.md describes it. A newer relink may add fields and buckets, and leave
// the oldest reader as it is. Then this relink may still change the store, and keeps what it does not know.
const (
	schema = 3
	// schemaV2 knew an owner by kind, namespace, name and UID. Of a holder's pod it had only the UID.
	schemaV2 = 2
	// schemaV1 had one holder for each lease, and neither events nor ranges.
	schemaV1 = 1

	keySchema = "schema"
	// keyReader is the oldest schema that a program has to know to open the store.
	keyReader = "reader"
	keyBoot   = "boot"
	keyClock  = "clock"
	// keyHandover has the mark of a store that is being put into another one. It is also the beginning of the
	// key under which the other store notes that it has taken the leases.
	keyHandover = "handover"
	// keyFrozen has the name of the network that gets the leases of this store right now.
	keyFrozen = "renaming to"
	// keyID has the identity of the store, which makes it a party of its pools. keyPools has the names of the pools, and
	// keyConfirmed the boot in which the agent has read the API.
	keyID        = "store"
	keyPools     = "pools"
	keyConfirmed = "confirmed"
	// keySign has the node's last sign of life in the API. A store has one if a pool has a term.
	keySign = "sign of life"

	// keyMachine has the ID of the machine that has written the store. keyNode and keyNodeUID are what the agent has said of the
	// node, in a store that has to do with pools, and keyElsewhere the name of the node on which the agent found the store, if that is
	// another one: by its name, or else by its UID.
	keyMachine   = "machine"
	keyNode      = "node"
	keyNodeUID   = "node UID"
	keyElsewhere = "elsewhere"
	// keyCluster has the UID of the namespace kube-system of the cluster that the owners are of.
	keyCluster = "cluster"

	bucketMeta        = "meta"
	bucketLeases      = "leases"      // address: lease in JSON
	bucketAttachments = "attachments" // container ID, ifname, address of what is held
	bucketOwners      = "owners"      // group, kind, namespace, name, UID, ordinal, address of what is held or reserved
	bucketRuns        = "runs"        // first: last of addresses without a gap that are not free
	bucketEnds        = "ends"        // time, address of what ends by itself
	bucketLast        = "last"        // number of range set: address that was given last
	bucketRanges      = "ranges"      // from 0 for the last on: what ADDs asked for, in JSON
	bucketEvents      = "events"      // number: event
	// The first change that has to do with a pool makes these.
	bucketPools  = "pools"  // name: layout in JSON
	bucketGrants = "grants" // name of the pool, index of the block: grant
	// The first pool with fenceAfter makes this one.
	bucketTerms = "terms" // name of the pool: term
)

// Schema is the schema of the stores that this program writes. It reads those from OldestSchema on.
const (
	Schema       = schema
	OldestSchema = schemaV1
)

// bucketsOf names the buckets of a schema.
func bucketsOf(schema int) []string {
	names := []string{bucketMeta, bucketLeases, bucketAttachments, bucketOwners, bucketRuns, bucketEnds, bucketLast}
	if schema == schemaV1 {
		return names
	}
	return append(names, bucketRanges, bucketEvents)
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range bucketsOf(schema) {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return setSchema(tx.Bucket([]byte(bucketMeta)))
}

func setSchema(meta *bolt.Bucket) error {
	current := []byte(strconv.Itoa(schema))
	return errors.Join(meta.Put([]byte(keySchema), current), meta.Put([]byte(keyReader), current))
}

// begin checks the file's length and the schema, and returns the leases in tx. A file that was cut short is
// refused even if this look does not need the missing part: the next change would write over it. A
// transaction that can change something brings the store to this schema.
func (s *Store) begin(o *opened, tx *bolt.Tx) (*leaseTx, error) {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("store %s: %w: %s", s.path, ErrDamaged, fmt.Sprintf(format, args...))
	}
	if info, err := o.file.Stat(); err != nil || info.Size() < tx.Size() {
		return nil, damaged("it was cut short of its %d bytes", tx.Size())
	}
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return nil, damaged("it has no bucket %q", bucketMeta)
	}
	version, err := readableSchema(meta)
	if err != nil {
		return nil, damaged("%v", err)
	}
	l := &leaseTx{store: s, schema: version, tx: tx, layouts: tx.Bucket([]byte(bucketPools)), grants: tx.Bucket([]byte(bucketGrants)), terms: tx.Bucket([]byte(bucketTerms))}
	buckets := l.buckets()
	for _, name := range bucketsOf(version) {
		if *buckets[name] = tx.Bucket([]byte(name)); *buckets[name] == nil {
			return nil, damaged("it has no bucket %q", name)
		}
	}
	if err := l.checkMachine(); err != nil {
		return nil, err
	}
	if l.instant, err = l.storeTime(); err != nil {
		return nil, err
	}
	if version < schema && tx.Writable() {
		return l, l.migrate(tx)
	}
	return l, nil
}

// readableSchema returns the schema of the store, or why this relink cannot open it.
func readableSchema(meta *bolt.Bucket) (int, error) {
	written := string(meta.Get([]byte(keySchema)))
	version, err := strconv.Atoi(written)
	if err != nil || version < schemaV1 {
		return 0, fmt.Errorf("its schema is %q, which does not exist", written)
	}
	if version <= schema {
		return version, nil
	}
	if oldest, err := strconv.Atoi(string(meta.Get([]byte(keyReader)))); err == nil && oldest <= schema {
		return version, nil
	}
	return 0, fmt.Errorf("a newer relink wrote it, in schema %d, and this one knows schemas up to %d; install the newer one again on this node", version, schema)
}

// migrate brings a store of an older schema to this one, in the transaction of the first change.
func (l *leaseTx) migrate(tx *bolt.Tx) error {
	leases, err := l.all()
	if err != nil {
		return err
	}
	for _, name := range bucketsOf(schema) {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		*l.buckets()[name] = b
	}
	l.schema = schema
	if err := removeKeys(l.byOwner); err != nil {
		return err
	}
	failpoint.Here("store being migrated")
	for _, lease := range leases {
		b, err := encodeLease(lease)
		if err != nil {
			return err
		}
		// The other indices are the same in all schemas.
		err = l.byAddress.Put(addressKey(lease.Address), b)
		if k := l.ownedKey(lease); k != nil {
			err = errors.Join(err, l.byOwner.Put(k, nil))
		}
		if err != nil {
			return err
		}
	}
	failpoint.Here("store migrated")
	return setSchema(l.meta)
}

// all returns every lease in the order of the addresses.
func (l *leaseTx) all() ([]Lease, error) {
	var leases []Lease
	err := l.each(func(lease Lease) error {
		leases = append(leases, lease)
		return nil
	})
	return slices.Clip(leases), err
}

// removeKeys empties the bucket. It lists the keys first: bbolt does not find a key that stands in the wrong place of
// a damaged file, and deletes nothing. A loop until the bucket is empty would not end.
func removeKeys(b *bolt.Bucket) error {
	var keys [][]byte
	err := b.ForEach(func(k, _ []byte) error {
		keys = append(keys, bytes.Clone(k))
		return nil
	})
	for _, k := range keys {
		err = errors.Join(err, b.Delete(k))
	}
	return err
}

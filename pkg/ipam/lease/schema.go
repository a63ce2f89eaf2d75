package lease

import (
	"fmt"
	"slices"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// Schema is the schema of a store, which docs/ipam.md describes. A newer relink may add fields and buckets to it: this relink keeps what
// it does not know. Whatever else changes is another schema, which this relink refuses.
const Schema = 1

// The keys and buckets of a store.
const (
	keySchema = "schema"
	keyBoot   = "boot"
	keyClock  = "clock"
	// keyID has the identity of the store, which makes it a party of its pools. keyPools has the names and choices of the pools, and
	// keyConfirmed the boot in which the agent has read the API.
	keyID    = "store"
	keyPools = "pools"
	// keyChosen and a choice have the name of its pool.
	keyChosen    = "chosen "
	keyConfirmed = "confirmed"
	// keyRequested has what the last ADD asked for, in JSON.
	keyRequested = "ranges"

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
	bucketEvents      = "events"      // number: event in JSON
	bucketPools       = "pools"       // name: layout in JSON
	bucketGrants      = "grants"      // name of the pool, index of the block: grant
)

func makeBuckets(tx *bolt.Tx) error {
	l := &leaseTx{}
	for name, bucket := range l.buckets() {
		var err error
		if *bucket, err = tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return l.putText(keySchema, strconv.Itoa(Schema))
}

// begin checks the file's length and the schema, and returns the leases in tx. A file that was cut short is
// refused even if this look does not need the missing part: the next change would write over it.
func (s *Store) begin(o *opened, tx *bolt.Tx) (*leaseTx, error) {
	if info, err := o.file.Stat(); err != nil || info.Size() < tx.Size() {
		return nil, damaged("it was cut short of its %d bytes", tx.Size())
	}
	l := &leaseTx{store: s, makeRoom: func() error {
		if err := o.makeRoom(tx.Size()); err != nil {
			return fmt.Errorf("store %s: make room for what gives addresses up: %w", s.path, err)
		}
		return nil
	}}
	if l.meta = tx.Bucket([]byte(bucketMeta)); l.meta == nil {
		return nil, damaged("it has no bucket %q", bucketMeta)
	}
	written := l.text(keySchema)
	switch version, err := strconv.Atoi(written); {
	case err != nil || version < Schema:
		return nil, damaged("its schema is %q, which does not exist", written)
	case version > Schema:
		return nil, damaged("a newer relink wrote it, in schema %d, and this one knows schema %d; install the newer one again on this node", version, Schema)
	}
	for name, bucket := range l.buckets() {
		if *bucket = tx.Bucket([]byte(name)); *bucket == nil {
			return nil, damaged("it has no bucket %q", name)
		}
	}
	if err := l.checkMachine(); err != nil {
		return nil, err
	}
	var err error
	l.instant, err = l.storeTime()
	return l, err
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

// text returns the text of a key in bucketMeta, empty for none.
func (l *leaseTx) text(key string) string { return string(l.meta.Get([]byte(key))) }

func (l *leaseTx) putText(key, text string) error { return l.meta.Put([]byte(key), []byte(text)) }

// damaged returns ErrDamaged with the reason. Store.open adds which store it is.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

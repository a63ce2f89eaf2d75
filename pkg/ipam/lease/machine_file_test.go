package lease

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// The actions below are those of others on the file of a store: copies, copies that are put back, and other versions of
// relink.

func (m *machine) backUp(t *rapid.T) {
	m.disk.needsRoom(t)
	b, err := os.ReadFile(m.store.path)
	must(t, err)
	must(t, os.WriteFile(m.store.path+".backup", b, 0o600))
	s := m.model.state.clone()
	m.backup = &s
}

// restore replaces the file by the copy. Programs that have the old file open still see that one.
func (m *machine) restore(t *rapid.T) {
	if m.backup == nil {
		t.Skip("nothing to restore")
	}
	must(t, os.Rename(m.store.path+".backup", m.store.path))
	m.model.state, m.backup = *m.backup, nil
	m.disk.roomy = false
}

// downgradeStore turns the store into one of schema 1 with the same leases. Schema 1 cannot describe an address with several
// holders.
func (m *machine) downgradeStore(t *rapid.T) {
	m.disk.needsRoom(t)
	s := m.model.state.clone()
	for _, l := range s.leases {
		if len(l.Holders) > 1 || s.schema > schema {
			t.Skip("schema 1 can't say that")
		}
	}
	edit(t, m.store.path, func(tx *bolt.Tx) error {
		leases, meta, owners := tx.Bucket([]byte(bucketLeases)), tx.Bucket([]byte(bucketMeta)), tx.Bucket([]byte(bucketOwners))
		errs := []error{meta.Put([]byte(keySchema), []byte("1")), meta.Delete([]byte(keyReader)), removeKeys(owners)}
		for a, l := range s.leases {
			errs = append(errs, leases.Put(addressKey(a), schema1(l)))
			if k := leases1.ownedKey(l); k != nil {
				errs = append(errs, owners.Put(k, nil))
			}
		}
		for _, name := range []string{bucketRanges, bucketEvents} {
			if tx.Bucket([]byte(name)) != nil {
				errs = append(errs, tx.DeleteBucket([]byte(name)))
			}
		}
		if clock := meta.Get([]byte(keyClock)); clock != nil {
			errs = append(errs, meta.Put([]byte(keyClock), append([]byte(nil), clock[:8]...)))
		}
		return errors.Join(errs...)
	})
	for a, l := range s.leases {
		s.leases[a] = fromSchema1(l)
	}
	s.schema, s.known = schemaV1, nil
	s.mark.uptime, s.mark.bootID = 0, ""
	m.model.state, m.disk.roomy = s, false
}

// leases1 are those of a store of schema 1.
var leases1 = leaseTx{schema: schemaV1}

// schema1 returns the lease as schema 1 stored it.
func schema1(l Lease) []byte {
	l = fromSchema1(l)
	h := newest(l)
	v1 := map[string]any{
		"address": l.Address, "attachment": map[string]string{"network": "pods", "containerID": h.ContainerID, "ifName": h.IfName},
		"owner": l.Owner, "podUID": h.Pod.UID, "state": l.State, "origin": h.Origin, "why": l.Reason,
		"policy": map[string]any{"sticky": h.Policy.Sticky, "retain": int64(h.Policy.Retain), "quarantine": int64(h.Policy.Quarantine)},
		"byHand": l.ByHand, "byHandUntil": l.ByHandUntil, "conflict": l.Conflict, "bootID": h.Namespace.BootID,
		"acquiredAt": h.Since, "releasedAt": l.ReleasedAt, "until": l.Until,
	}
	b, err := json.Marshal(v1)
	if err != nil {
		panic(err)
	}
	return b
}

// fromSchema1 returns the lease without what schema 1 does not store, such as the time of a reservation by hand.
func fromSchema1(l Lease) Lease {
	h := newest(l)
	h.Namespace, h.unknown = attachment.Namespace{BootID: h.Namespace.BootID}, nil
	h.Owner, h.Policy.Shared, h.Policy.ByOwner, h.Pod = attachment.Owner{}, false, false, attachment.Pod{UID: h.Pod.UID}
	if owned(l) && h.ContainerID != "" {
		h.Pod.Namespace, h.Pod.Name = l.Owner.Namespace, l.Owner.Name
	}
	l.unknown = nil
	if l.ByHand {
		l.ByHandAt = h.Since
		if l.ReleasedAt.After(h.Since) {
			l.ByHandAt = l.ReleasedAt
		}
	}
	if l.State == Held {
		l.Holders = []Holder{h}
	} else {
		h.Origin, h.Namespace.BootID = "", ""
		l.Last = h
	}
	return l
}

// upgradeStore does what a newer relink may do without shutting out this one. It adds a bucket, and fields to a lease and its
// holders.
func (m *machine) upgradeStore(t *rapid.T) {
	if m.model.state.schema == schemaV1 {
		t.Skip("it would have migrated it")
	}
	m.disk.needsRoom(t)
	a, n := drawAddress(t), rapid.IntRange(1, 99).Draw(t, "n")
	s := m.model.state.clone()
	edit(t, m.store.path, func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		future, err := tx.CreateBucketIfNotExists([]byte("future"))
		if err != nil {
			return err
		}
		errs := []error{
			meta.Put([]byte(keySchema), []byte(strconv.Itoa(schema+1))), meta.Put([]byte(keyReader), []byte(strconv.Itoa(schema))),
			future.Put([]byte("k"), []byte("v")),
		}
		leases := tx.Bucket([]byte(bucketLeases))
		if b := leases.Get(addressKey(a)); b != nil {
			errs = append(errs, leases.Put(addressKey(a), withFuture(b, n)))
		}
		return errors.Join(errs...)
	})
	if l, leased := s.leases[a]; leased {
		s.leases[a] = hasFuture(l, n)
	}
	s.schema = schema + 1
	m.model.state, m.disk.roomy = s, false
}

// withFuture returns the lease in JSON with a field that this relink does not know. The lease has the field, and so has
// each of its holders.
func withFuture(b []byte, n int) []byte {
	var lease map[string]any
	if err := json.Unmarshal(b, &lease); err != nil {
		panic(err)
	}
	all := []any{lease}
	if last, ok := lease["last"]; ok {
		all = append(all, last)
	}
	if holders, ok := lease["holders"].([]any); ok {
		all = append(all, holders...)
	}
	for i, o := range all {
		maps.Copy(o.(map[string]any), map[string]any{"future": n + i})
	}
	b, err := json.Marshal(lease)
	if err != nil {
		panic(err)
	}
	return b
}

// hasFuture returns that lease as this relink reads it.
func hasFuture(l Lease, n int) Lease {
	field := func(n int) unknown { return unknown{"future": jsontext.Value(strconv.Itoa(n))} }
	l.unknown = field(n)
	at := n + 1
	if !reflect.ValueOf(l.Last).IsZero() {
		l.Last.unknown = field(at)
		at++
	}
	holders := l.Holders
	l.Holders = nil
	for i, h := range holders {
		h.unknown = field(at + i)
		l.Holders = append(l.Holders, h)
	}
	return l
}

// checkFile checks what no command shows: the schema, a newer relink's bucket, and whether the last event of each
// address matches its lease.
func (m *machine) checkFile(t *rapid.T) {
	var last map[netip.Addr]Event
	must(t, m.store.view(t.Context(), func(l *leaseTx) error {
		if got := string(l.meta.Get([]byte(keySchema))); got != strconv.Itoa(m.model.state.schema) {
			t.Fatalf("schema %s, the model says %d", got, m.model.state.schema)
		}
		future := l.meta.Tx().Bucket([]byte("future"))
		if m.model.state.schema == schema+1 && (future == nil || string(future.Get([]byte("k"))) != "v") {
			t.Fatal("a newer relink's bucket is lost")
		}
		var err error
		last, err = lastEvents(l)
		return err
	}))
	for a, e := range last {
		if got := m.model.state.leases[a].State; got != e.StateAfter {
			t.Fatalf("%s is %q, its last event %+v", a, got, e)
		}
	}
}

// lastEvents returns the last event of each address.
func lastEvents(l *leaseTx) (map[netip.Addr]Event, error) {
	last := map[netip.Addr]Event{}
	err := l.eachEvent(func(e Event) { last[e.Address] = e })
	delete(last, netip.Addr{})
	return last, err
}

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

// addToStore does what a newer relink may do. It adds a bucket, and fields to a lease and its holders.
func (m *machine) addToStore(t *rapid.T) {
	m.disk.needsRoom(t)
	a, n := drawAddress(t), rapid.IntRange(1, 99).Draw(t, "n")
	s := m.model.state.clone()
	edit(t, m.store.path, func(tx *bolt.Tx) error {
		future, err := tx.CreateBucketIfNotExists([]byte("future"))
		if err != nil {
			return err
		}
		errs := []error{future.Put([]byte("k"), []byte("v"))}
		leases := tx.Bucket([]byte(bucketLeases))
		if b := leases.Get(addressKey(a)); b != nil {
			errs = append(errs, leases.Put(addressKey(a), withFuture(b, n)))
		}
		return errors.Join(errs...)
	})
	if l, leased := s.leases[a]; leased {
		s.leases[a] = hasFuture(l, n)
	}
	s.future = true
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
	field := func(n int) Unknown { return Unknown{"future": jsontext.Value(strconv.Itoa(n))} }
	l.Unknown = field(n)
	at := n + 1
	if !reflect.ValueOf(l.Last).IsZero() {
		l.Last.Unknown = field(at)
		at++
	}
	holders := l.Holders
	l.Holders = nil
	for i, h := range holders {
		h.Unknown = field(at + i)
		l.Holders = append(l.Holders, h)
	}
	return l
}

// checkFile checks what no command shows: a newer relink's bucket, and whether the last event of each
// address matches its lease.
func (m *machine) checkFile(t *rapid.T) {
	var last map[netip.Addr]Event
	must(t, m.store.view(t.Context(), func(l *leaseTx) error {
		future := l.meta.Tx().Bucket([]byte("future"))
		if m.model.state.future && (future == nil || string(future.Get([]byte("k"))) != "v") {
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

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// machine is a store and its model under the same operations.
type machine struct {
	store *Store
	model *model
	boots int
}

func newMachine(t *rapid.T, dir string) *machine {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &machine{model: &model{now: start, bootID: "boot-0", state: modelState{bootID: "boot-0"}}}
	m.store = &Store{network: "pods", path: dir + "/pods.db", wait: time.Minute, bootID: "boot-0", now: func() time.Time { return m.model.now }}
	if err := m.store.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// agree compares an outcome: an error for an error, the same address.
func agree(t *rapid.T, what string, got, want netip.Addr, err, wantErr error) {
	t.Helper()
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%s: %v, the model says %v", what, err, wantErr)
	}
	if err == nil && got != want {
		t.Fatalf("%s: %s, the model says %s", what, got, want)
	}
}

func drawKey(t *rapid.T) attachment.Key {
	return attachment.Key{
		Network: "pods", ContainerID: fmt.Sprintf("c%d", rapid.IntRange(0, 5).Draw(t, "container")),
		IfName: rapid.SampledFrom([]string{"eth0", "net1"}).Draw(t, "ifname"),
	}
}

func drawOwner(t *rapid.T) attachment.Owner {
	name := rapid.SampledFrom([]string{"", "web-0", "web-1", "web-2"}).Draw(t, "pod")
	return attachment.Pod{Namespace: "default", Name: name}.Owner()
}

func (m *machine) add(t *rapid.T) {
	r := request{
		attachment: drawKey(t), owner: drawOwner(t), sets: []RangeSet{pool},
		policy: Policy{
			Sticky:     rapid.Bool().Draw(t, "sticky"),
			Retain:     time.Duration(rapid.SampledFrom([]int{0, 0, 30, 300}).Draw(t, "retain")) * time.Second,
			Quarantine: time.Duration(rapid.SampledFrom([]int{0, 60}).Draw(t, "quarantine")) * time.Second,
		},
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
		a := rapid.SampledFrom(append(slices.Clone(inPool), addr("10.0.0.4"), addr("10.0.0.5"), addr("10.0.9.9"))).Draw(t, "address")
		r.requested = []requested{{a, func(must string) error { return errors.New(must) }}}
	}
	var got netip.Addr
	err := m.store.update(t.Context(), func(l *leases) error {
		given, err := l.allocate(r)
		if err == nil {
			got = given[0].Address
		}
		return err
	})
	want, wantErr := m.model.add(r)
	agree(t, "ADD", got, want, err, wantErr)
}

func (m *machine) del(t *rapid.T) {
	key := drawKey(t)
	err := m.store.change(t.Context(), func(l *leases) error { return l.releaseAll(key) })
	agree(t, "DEL", netip.Addr{}, netip.Addr{}, err, m.model.releaseIf(func(l Lease) bool { return l.HeldBy(key) }))
}

func (m *machine) gc(t *rapid.T) {
	valid := map[types.GCAttachment]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "valid") {
		key := drawKey(t)
		valid[types.GCAttachment{ContainerID: key.ContainerID, IfName: key.IfName}] = true
	}
	err := m.store.change(t.Context(), func(l *leases) error { return l.collect(valid) })
	agree(t, "GC", netip.Addr{}, netip.Addr{}, err, m.model.releaseIf(func(l Lease) bool {
		return !valid[types.GCAttachment{ContainerID: l.Attachment.ContainerID, IfName: l.Attachment.IfName}]
	}))
}

func (m *machine) reserve(t *rapid.T) {
	a, owner := rapid.SampledFrom(inPool).Draw(t, "address"), drawOwner(t)
	retain := time.Duration(rapid.SampledFrom([]int{0, 45}).Draw(t, "for")) * time.Second
	_, err := m.store.Reserve(t.Context(), a, owner, retain)
	if owner == (attachment.Owner{}) {
		if err == nil {
			t.Fatal("reserved for nobody")
		}
		return
	}
	agree(t, "reserve", netip.Addr{}, netip.Addr{}, err, m.model.reserve(a, owner, retain))
}

// release expects who has it, or somebody else, which changes nothing.
func (m *machine) release(t *rapid.T) {
	a := rapid.SampledFrom(inPool).Draw(t, "address")
	l := m.model.booted().leases[a]
	holder := Holder{Nobody: l.State == Quarantined, Owner: l.Owner}
	if l.State == Held {
		holder = Holder{ContainerID: l.Attachment.ContainerID}
	}
	if holder.Nobody {
		holder.Owner = attachment.Owner{}
	}
	if rapid.Bool().Draw(t, "wrong") {
		_, _, err := m.store.Release(t.Context(), a, Holder{ContainerID: "another"})
		if err == nil {
			t.Fatal("released though another holds it")
		}
		return
	}
	_, _, err := m.store.Release(t.Context(), a, holder)
	agree(t, "release", netip.Addr{}, netip.Addr{}, err, m.model.release(a))
}

func (m *machine) conflict(t *rapid.T) {
	a := rapid.SampledFrom(inPool).Draw(t, "address")
	key := m.model.state.leases[a].Attachment
	var refusal error
	err := m.store.update(t.Context(), func(l *leases) (err error) {
		_, refusal, err = l.conflict(key, a, "02:00:00:00:00:01")
		return err
	})
	agree(t, "conflict", netip.Addr{}, netip.Addr{}, errors.Join(err, refusal), m.model.conflict(key, a))
}

// crash ends an ADD or a DEL after what it did and before it is committed.
func (m *machine) crash(t *rapid.T) {
	key := drawKey(t)
	err := m.store.update(t.Context(), func(l *leases) error {
		if _, err := l.allocate(request{attachment: key, sets: []RangeSet{pool}}); err == nil {
			err = l.releaseAll(drawKey(t))
			if err != nil && !errors.Is(err, errUnchanged) {
				t.Fatal(err)
			}
		}
		panic("crash")
	})
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("a crash: %v", err)
	}
}

func (m *machine) later(t *rapid.T) {
	m.model.now = m.model.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
}

func (m *machine) reboot(*rapid.T) {
	m.boots++
	m.model.bootID = fmt.Sprintf("boot-%d", m.boots)
	m.store.bootID = m.model.bootID
}

// check compares everything.
func (m *machine) check(t *rapid.T) {
	if err := m.store.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := m.store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := cmpopts.IgnoreFields(Lease{}, "PodUID", "Origin", "Why", "AcquiredAt", "ReleasedAt", "BootID")
	if diff := cmp.Diff(m.model.list(), got, known, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-model +store):\n%s", diff)
	}
}

// TestStoreDoesAsItsModel is 100 lives of a store of some 100 operations each, compared
// after each with a model that knows no index.
func TestStoreDoesAsItsModel(t *testing.T) {
	lives := 0
	rapid.Check(t, func(rt *rapid.T) {
		lives++
		m := newMachine(rt, t.TempDir())
		rt.Repeat(map[string]func(*rapid.T){
			"ADD": m.add, "ADD too": m.add, "ADD also": m.add, "DEL": m.del, "DEL too": m.del, "GC": m.gc, "reserve": m.reserve, "release": m.release,
			"conflict": m.conflict, "crash": m.crash, "later": m.later, "reboot": m.reboot, "": m.check,
		})
	})
	t.Logf("%d lives", lives)
}

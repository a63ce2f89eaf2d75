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

// model is what a store does, told by looking at every address: no index, no runs.
type model struct {
	now    time.Time
	bootID string
	state  modelState
}

// modelState is what a store has on disk.
type modelState struct {
	bootID string
	last   netip.Addr
	leases map[netip.Addr]Lease
}

func (s modelState) clone() modelState {
	leases := map[netip.Addr]Lease{}
	for a, l := range s.leases {
		leases[a] = l
	}
	s.leases = leases
	return s
}

// pool is small, so that everything meets: five addresses in two ranges, between them
// the gateway and an excluded one.
var pool = RangeSet{
	{Span: span("10.0.0.2", "10.0.0.6"), Gateway: addr("10.0.0.4"), Excluded: []Span{span("10.0.0.5", "10.0.0.5")}, Subnet: netip.MustParsePrefix("10.0.0.0/24")},
	{Span: span("10.0.1.1", "10.0.1.2"), Gateway: addr("10.0.1.9"), Subnet: netip.MustParsePrefix("10.0.1.0/24")},
}

// inPool are the addresses that can be given, in order.
var inPool = []netip.Addr{addr("10.0.0.2"), addr("10.0.0.3"), addr("10.0.0.6"), addr("10.0.1.1"), addr("10.0.1.2")}

// settled is change after what nobody has any more is free.
func (m *model) settled(f func(*modelState) error) error {
	return m.change(func(s *modelState) error {
		*s = m.booted()
		for a, l := range s.leases {
			if m.over(l) {
				delete(s.leases, a)
			}
		}
		return f(s)
	})
}

// change is Store.update: all or nothing.
func (m *model) change(f func(*modelState) error) error {
	s := m.state.clone()
	if err := f(&s); err != nil {
		return err
	}
	m.state = s
	return nil
}

// booted is the state once nothing of an earlier boot is held any more.
func (m *model) booted() modelState {
	s := m.state.clone()
	if s.bootID != m.bootID {
		for a, l := range s.leases {
			if l.State == Held && l.BootID != m.bootID {
				m.giveUp(&s, a)
			}
		}
		s.bootID = m.bootID
	}
	return s
}

func (m *model) giveUp(s *modelState, a netip.Addr) {
	l := s.leases[a]
	l.ReleasedAt = m.now
	if l.Conflict {
		l.Policy.Quarantine = max(l.Policy.Quarantine, DefaultQuarantine)
	}
	if !l.ByHandUntil.IsZero() && !l.ByHandUntil.After(m.now) {
		l.ByHand, l.ByHandUntil = false, time.Time{}
	}
	owned := l.Owner != attachment.Owner{}
	ends := []time.Time{m.now.Add(l.Policy.Quarantine), l.ByHandUntil}
	if l.Policy.Sticky {
		ends = append(ends, m.now.Add(l.Policy.Retain))
	}
	switch {
	case owned && (l.ByHand && l.ByHandUntil.IsZero() || l.Policy.Sticky && l.Policy.Retain == 0):
		l.State, l.Until, l.Conflict = Reserved, time.Time{}, false
	case owned && (l.ByHand || l.Policy.Sticky):
		l.State, l.Until, l.Conflict = Reserved, slices.MaxFunc(ends, time.Time.Compare), false
	case l.Policy.Quarantine > 0:
		l.State, l.Until = Quarantined, ends[0]
	default:
		delete(s.leases, a)
		return
	}
	s.leases[a] = l
}

func (m *model) over(l Lease) bool { return !l.Until.IsZero() && !l.Until.After(m.now) }

func (m *model) add(r request) (given netip.Addr, err error) {
	err = m.settled(func(s *modelState) error {
		var turn bool
		if given, turn, err = m.pick(s, r); err != nil {
			return err
		}
		if turn {
			s.last = given
		}
		if s.leases[given].HeldBy(r.attachment) {
			return nil
		}
		policy := r.policy
		if was := s.leases[given]; was.State == Held && was.Policy.Sticky && !policy.Sticky {
			policy = was.Policy
		}
		origin := InTurn
		if was := s.leases[given]; was.State == Held {
			origin = TakenOver
		} else if len(r.requested) > 0 || was.State == Reserved {
			origin = Requested
		}
		s.leases[given] = Lease{
			Address: given, Attachment: r.attachment, Owner: r.owner, State: Held, Origin: origin, Policy: policy,
			ByHand: s.leases[given].ByHand, ByHandUntil: s.leases[given].ByHandUntil, BootID: m.bootID,
		}
		return nil
	})
	return given, err
}

var errModel = errors.New("refused")

// pick says which address the attachment gets, and whether the next one follows on it.
func (m *model) pick(s *modelState, r request) (netip.Addr, bool, error) {
	for _, a := range inPool {
		if s.leases[a].HeldBy(r.attachment) {
			if len(r.requested) > 0 && r.requested[0].address != a {
				return a, false, errModel
			}
			return a, false, nil
		}
	}
	if len(r.requested) > 0 {
		return m.pickRequested(s, r)
	}
	succeeds := func(l Lease) bool { return m.succeeds(l, r) }
	for _, fits := range []func(Lease) bool{
		func(l Lease) bool { return l.State == Reserved && l.Attachment.IfName == r.attachment.IfName },
		succeeds,
		func(l Lease) bool { return l.State == Reserved },
	} {
		var best netip.Addr
		for _, a := range inPool {
			l := s.leases[a]
			if r.owner != (attachment.Owner{}) && l.Owner == r.owner && fits(l) && (!best.IsValid() || l.ReleasedAt.After(s.leases[best].ReleasedAt)) {
				best = a
			}
		}
		if best.IsValid() {
			return best, false, nil
		}
	}
	at := slices.Index(inPool, s.last) + 1
	for i := range inPool {
		a := inPool[(at+i)%len(inPool)]
		if _, leased := s.leases[a]; !leased {
			return a, true, nil
		}
	}
	var first netip.Addr
	for _, a := range inPool {
		if l := s.leases[a]; l.State == Quarantined && !l.Conflict && (!first.IsValid() || l.Until.Before(s.leases[first].Until)) {
			first = a
		}
	}
	if !first.IsValid() {
		return first, false, errModel
	}
	return first, true, nil
}

func (m *model) pickRequested(s *modelState, r request) (netip.Addr, bool, error) {
	a := r.requested[0].address
	l, leased := s.leases[a]
	switch {
	case !slices.Contains(inPool, a):
		return a, false, errModel
	case !leased, l.State == Quarantined:
		return a, true, nil
	case l.State == Reserved && l.Owner == r.owner, m.succeeds(l, r):
		return a, false, nil
	}
	return a, false, errModel
}

func (m *model) succeeds(l Lease, r request) bool {
	return l.State == Held && (r.policy.Sticky || l.Policy.Sticky || l.ByHand && (l.ByHandUntil.IsZero() || l.ByHandUntil.After(m.now))) && r.owner != (attachment.Owner{}) && l.Owner == r.owner &&
		l.Attachment.IfName == r.attachment.IfName && l.Attachment.ContainerID != r.attachment.ContainerID
}

func (m *model) releaseIf(gone func(Lease) bool) error {
	return m.change(func(s *modelState) error {
		for a, l := range s.leases {
			if l.State == Held && gone(l) {
				m.giveUp(s, a)
			}
		}
		return nil
	})
}

func (m *model) reserve(a netip.Addr, o attachment.Owner, retain time.Duration) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		var until time.Time
		if retain > 0 {
			until = m.now.Add(retain)
		}
		switch {
		case leased && l.State != Quarantined && l.Owner != o:
			return errModel
		case leased && l.State == Held:
			l.ByHand, l.ByHandUntil = true, until
			s.leases[a] = l
			return nil
		case leased && l.State == Reserved:
			if retain > 0 && (l.Until.IsZero() || l.Until.After(until)) {
				until = l.Until
			}
		case leased:
			l.Attachment, l.Policy = attachment.Key{Network: "pods"}, Policy{Quarantine: l.Policy.Quarantine}
			if retain > 0 && l.Until.After(until) {
				until = l.Until
			}
		default:
			l = Lease{Address: a, Attachment: attachment.Key{Network: "pods"}, ReleasedAt: m.now}
		}
		l.Owner, l.State, l.ByHand, l.ByHandUntil, l.Until = o, Reserved, true, until, until
		s.leases[a] = l
		return nil
	})
}

func (m *model) conflict(key attachment.Key, a netip.Addr) error {
	refused := false
	err := m.change(func(s *modelState) error {
		l := s.leases[a]
		switch {
		case !l.HeldBy(key):
			return errModel
		case l.Origin == TakenOver:
			return nil
		case l.ByHand || l.Origin != InTurn:
			l.Conflict, refused = true, true
			s.leases[a] = l
			return nil
		}
		l.Conflict, l.Owner = true, attachment.Owner{}
		s.leases[a] = l
		m.giveUp(s, a)
		return nil
	})
	if refused {
		return errModel
	}
	return err
}

// release is by hand.
func (m *model) release(a netip.Addr) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		if !leased {
			return errModel
		}
		quarantine := l.ReleasedAt.Add(l.Policy.Quarantine)
		switch {
		case l.State == Reserved && quarantine.After(m.now):
			l.ByHand, l.ByHandUntil, l.Policy.Sticky, l.State, l.Until = false, time.Time{}, false, Quarantined, quarantine
			s.leases[a] = l
			return nil
		case l.State != Held:
			delete(s.leases, a)
			return nil
		}
		l.ByHand, l.ByHandUntil, l.Policy.Sticky = false, time.Time{}, false
		s.leases[a] = l
		m.giveUp(s, a)
		return nil
	})
}

// list is what Store.List returns, as far as the model knows it.
func (m *model) list() []Lease {
	var all []Lease
	leases := m.booted().leases
	for _, a := range inPool {
		if l, leased := leases[a]; leased && !m.over(l) {
			all = append(all, l)
		}
	}
	return all
}

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

package lease

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// machine is a store and its model. Both go through the same operations.
type machine struct {
	store *Store
	model *model
	boots int
	// backup is the model at the time of the copy, or nil if there is no copy.
	backup *modelState
	disk   *machineDisk
}

func newMachine(t *rapid.T, dir string, disk *machineDisk) *machine {
	m := &machine{disk: disk, model: &model{
		day: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uptime: time.Minute, bootID: "boot-0",
	}}
	m.store = &Store{machine: func() string { return "" }, network: "pods", path: dir + "/pods.db", wait: time.Minute, bootID: "boot-0"}
	m.store.clock = func() time.Time { return m.model.day }
	m.store.uptime = func() (time.Duration, error) { return m.model.uptime, nil }
	must(t, m.store.create(t.Context()))
	return m
}

// kind returns which kind of refusal an error is.
func kind(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return errModel
	}
	for _, is := range []error{ErrExhausted, ErrTaken, ErrNotLeased, ErrHolderChanged, ErrNotGiven, ErrInUse, ErrDamaged} {
		if errors.Is(err, is) {
			return is
		}
	}
	if err != nil {
		return errModel
	}
	return nil
}

// agree compares two outcomes: the refusal, and what was given.
func agree(t *rapid.T, what string, err, wantErr error, gotAndWant ...any) {
	t.Helper()
	if !errors.Is(kind(err), wantErr) {
		t.Fatalf("%s: %v, the model says %v", what, err, wantErr)
	}
	if err == nil && len(gotAndWant) == 2 && fmt.Sprint(gotAndWant[0]) != fmt.Sprint(gotAndWant[1]) {
		t.Fatalf("%s: %v, the model says %v", what, gotAndWant[0], gotAndWant[1])
	}
}

func drawKey(t *rapid.T) attachment.Key {
	return attachment.Key{
		Network: "pods", ContainerID: fmt.Sprintf("c%d", rapid.IntRange(0, 5).Draw(t, "container")),
		IfName: rapid.SampledFrom([]string{"eth0", "eth0", "net1"}).Draw(t, "ifname"),
	}
}

func drawOwner(t *rapid.T) attachment.Owner {
	if rapid.IntRange(0, 3).Draw(t, "resolved") > 0 {
		return pod(rapid.SampledFrom([]string{"", "web-0", "web-0", "web-1", "web-2"}).Draw(t, "pod"))
	}
	return drawResolved(t)
}

// drawResolved returns an owner as the Kubernetes API has it.
func drawResolved(t *rapid.T) attachment.Owner {
	return attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: rapid.SampledFrom([]string{"set-1", "set-1", "set-2"}).Draw(t, "set"),
		Ordinal: attachment.OrdinalOf(rapid.IntRange(-1, 1).Draw(t, "ordinal")),
	}
}

// drawPod returns a pod: no two names have one UID.
func drawPod(t *rapid.T) attachment.Pod {
	p := attachment.Pod{Namespace: "default", Name: rapid.SampledFrom([]string{"web-0", "web-1"}).Draw(t, "name")}
	if uid := rapid.SampledFrom([]string{"", "uid-1", "uid-2"}).Draw(t, "UID"); uid != "" {
		p.UID = uid + " of " + p.Name
	}
	return p
}

func drawAddress(t *rapid.T) netip.Addr { return addr(rapid.SampledFrom(texts).Draw(t, "address")) }

func drawPolicy(t *rapid.T) Policy {
	seconds := func(what string, choices ...int) Duration {
		return Duration(time.Duration(rapid.SampledFrom(choices).Draw(t, what)) * time.Second)
	}
	return Policy{Sticky: rapid.Bool().Draw(t, "sticky"), Retain: seconds("retain", 0, 0, 30, 300), Quarantine: seconds("quarantine", 0, 60), Shared: rapid.IntRange(0, 3).Draw(t, "shared") == 0, ByOwner: rapid.IntRange(0, 3).Draw(t, "by owner") == 0}
}

// add mostly uses the first plan, because the configuration of a network does not change often.
func (m *machine) add(t *rapid.T) {
	p := plans[max(0, rapid.IntRange(-4, len(plans)-1).Draw(t, "plan"))]
	key := drawKey(t)
	r := Request{
		Attachment: key, Owner: drawOwner(t), Pod: drawPod(t), Sets: p.sets, Policy: drawPolicy(t),
		Namespace: attachment.Namespace{Path: "/run/netns/" + key.ContainerID, Inode: rapid.Uint64Range(0, 2).Draw(t, "inode")},
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
		choices := append(slices.Clone(texts), "10.0.7.7")
		for range rapid.IntRange(1, 2).Draw(t, "for") {
			r.RequestedAddresses = append(r.RequestedAddresses, addr(rapid.SampledFrom(choices).Draw(t, "wanted")))
		}
	}
	m.drawOwners(t, &r)
	var got []netip.Addr
	given, err := m.store.Allocate(t.Context(), r)
	if m.disk.lacksRoom(t, err, true) {
		return
	}
	m.disk.roomy = m.disk.roomy || err == nil
	for _, l := range given {
		got = append(got, l.Address)
		expectOnePod(t, l)
	}
	want, wantErr := m.model.add(p, r)
	agree(t, "ADD", err, wantErr, got, want)
}

// expectOnePod checks what an owner with several pods is promised: no two of them have one address.
func expectOnePod(t *rapid.T, l Lease) {
	newest := l.Newest()
	for _, h := range l.Holders {
		another := (h.Pod.UID == "" || h.Pod.UID != newest.Pod.UID) && (h.Pod.Name == "" || h.Pod.Owner() != newest.Pod.Owner())
		if newest.Policy.Shared && another && h.ContainerID != newest.ContainerID {
			t.Fatalf("%s is held by %s and %s, two pods of an owner that has several", l.Address, h.Pod, newest.Pod)
		}
	}
}

// drawOwners adds what the API tells of the pod to some requests.
func (m *machine) drawOwners(t *rapid.T, r *Request) {
	if rapid.Bool().Draw(t, "asked the API") {
		r.APIOwner = drawResolved(t)
		r.AlternateOwner = rapid.SampledFrom([]attachment.Owner{pod("web-0"), pod("web-1"), {}}).Draw(t, "also")
	}
	if len(r.RequestedAddresses) == 0 && rapid.IntRange(0, 3).Draw(t, "has a list") == 0 {
		for range rapid.IntRange(1, 3).Draw(t, "of") {
			r.CandidateAddresses = append(r.CandidateAddresses, addr(rapid.SampledFrom(append(slices.Clone(texts), "10.0.7.7")).Draw(t, "one of")))
		}
	}
}

func (m *machine) del(t *rapid.T) {
	key := drawKey(t)
	err := m.store.Release(t.Context(), key, Policy{})
	if !m.disk.lacksRoom(t, err, false) {
		agree(t, "DEL", err, m.model.release(key))
	}
}

func (m *machine) gc(t *rapid.T) {
	valid := map[attachment.Key]bool{}
	for range rapid.IntRange(0, 9).Draw(t, "valid") {
		valid[drawKey(t)] = true
	}
	err := m.store.Collect(t.Context(), func(h Holder) bool { return valid[h.Key("pods")] })
	if !m.disk.lacksRoom(t, err, false) {
		agree(t, "GC", err, m.model.giveUpIf(func(h Holder) bool { return !valid[h.Key("pods")] }))
	}
}

func (m *machine) settled(t *rapid.T) {
	key := drawKey(t)
	err := m.store.ReleasePrevious(t.Context(), key, func(Holder) bool { return true })
	if !m.disk.lacksRoom(t, err, false) {
		agree(t, "settled", err, m.model.releasePrevious(key))
	}
}

// abandon names a holder as somebody has seen it, perhaps long ago.
func (m *machine) abandon(t *rapid.T) {
	lease := m.model.state.leases[drawAddress(t)]
	holder := lease.Last
	if len(lease.Holders) > 0 {
		holder = rapid.SampledFrom(lease.Holders).Draw(t, "holder")
	}
	switch rapid.IntRange(0, 5).Draw(t, "stale") {
	case 0:
		holder.Since = holder.Since.Add(-time.Second)
	case 1:
		holder.Namespace.Inode += 7
	}
	err := m.store.RemoveHolder(t.Context(), lease, holder, "proven gone")
	if lease.Address.IsValid() && !m.disk.lacksRoom(t, err, false) {
		agree(t, "abandon", err, m.model.abandon(lease.Address, holder))
	}
}

func (m *machine) reserve(t *rapid.T) {
	a, owner := drawAddress(t), drawOwner(t)
	retain := time.Duration(rapid.SampledFrom([]int{0, 10, 45, 400}).Draw(t, "for")) * time.Second
	_, err := m.store.Reserve(t.Context(), a, owner, retain)
	if m.disk.lacksRoom(t, err, true) {
		return
	}
	if owner == (attachment.Owner{}) {
		agree(t, "reserve for nobody", err, errModel)
		return
	}
	agree(t, "reserve", err, m.model.reserve(a, owner, retain))
}

// releaseByHand names the present holders, or sometimes somebody else. The latter changes nothing.
func (m *machine) releaseByHand(t *rapid.T) {
	a := drawAddress(t)
	l, leased := m.model.current()[a]
	l.Address = a
	holders := l.Holders
	if l.State == Held && rapid.Bool().Draw(t, "one holder") {
		holders = []Holder{rapid.SampledFrom(l.Holders).Draw(t, "holder")}
	}
	if leased && rapid.IntRange(0, 3).Draw(t, "wrong") == 0 {
		l.Owner, l.Holders = pod("another"), append(slices.Clone(l.Holders), Holder{ContainerID: "another"})
		err := m.store.ReleaseByHand(t.Context(), l)
		agree(t, "release of another's", err, ErrHolderChanged)
		return
	}
	err := m.store.ReleaseByHand(t.Context(), l, holders...)
	if m.disk.lacksRoom(t, err, false) {
		return
	}
	agree(t, "release", err, m.model.releaseByHand(a, func(h Holder) bool { return slices.ContainsFunc(holders, h.sameAttachment) }))
}

func (m *machine) conflict(t *rapid.T) {
	a, key := drawAddress(t), drawKey(t)
	if l := m.model.state.leases[a]; len(l.Holders) > 0 {
		key = rapid.SampledFrom(l.Holders).Draw(t, "holder").Key("pods")
	}
	got, err := m.store.Conflict(t.Context(), key, a, "02:00:00:00:00:01")
	if m.disk.lacksRoom(t, err, false) {
		return
	}
	want, wantErr := m.model.conflict(key, a)
	agree(t, "conflict", err, wantErr, got, want)
}

// crash ends an ADD or a DEL after its changes, but before it commits them.
func (m *machine) crash(t *rapid.T) {
	key := drawKey(t)
	err := m.store.update(t.Context(), func(l *leaseTx) error {
		if _, err := l.allocate(Request{Attachment: key, Sets: plans[0].sets}); err == nil {
			err = l.release(drawKey(t), Policy{})
			if err != nil && !errors.Is(err, errUnchanged) {
				t.Fatal(err)
			}
		}
		panic("crash")
	})
	if !m.disk.lacksRoom(t, err, true) {
		agree(t, "crash", err, ErrDamaged)
	}
}

// later lets time pass, both for the clock and for the kernel.
func (m *machine) later(t *rapid.T) {
	by := time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second
	m.model.day, m.model.uptime = m.model.day.Add(by), m.model.uptime+by
}

// setClock sets the time of day: sometimes right, sometimes far off. The kernel takes no time before 1970, and a node
// without a battery begins there.
func (m *machine) setClock(t *rapid.T) {
	years := rapid.SampledFrom([]int{-100, -10, 0, 0, 10}).Draw(t, "years")
	m.model.day = m.model.day.AddDate(years, rapid.SampledFrom([]int{-1, 0, 1}).Draw(t, "months"), 0)
	if m.model.day.Before(time.Unix(0, 0)) {
		m.model.day = time.Unix(0, 0).UTC().Add(m.model.uptime)
	}
}

func (m *machine) reboot(t *rapid.T) {
	m.boots++
	m.model.bootID = fmt.Sprintf("boot-%d", m.boots)
	m.store.bootID = m.model.bootID
	m.model.uptime = time.Duration(rapid.IntRange(1, 300).Draw(t, "uptime")) * time.Second
	m.model.day = m.model.day.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "takes")) * time.Second)
}

func (m *machine) resetClock(t *rapid.T) {
	want := m.model.now().Sub(m.model.day)
	got, err := m.store.ResetClock(t.Context())
	if m.disk.lacksRoom(t, err, true) {
		return
	}
	m.model.resetClock()
	agree(t, "reset of the clock", err, nil, got, want)
}

var sameLease = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(),
}

// check compares everything.
func (m *machine) check(t *rapid.T) {
	must(t, m.store.Verify(t.Context()))
	got, err := m.store.List(t.Context())
	must(t, err)
	// Why is written for people.
	if diff := cmp.Diff(m.model.list(), got, sameLease, cmpopts.IgnoreFields(Lease{}, "Reason")); diff != "" {
		t.Fatalf("(-model +store):\n%s", diff)
	}
	m.checkHolders(t, got)
	m.checkUsage(t)
	m.checkFile(t)
	m.checkExhausted(t)
}

// checkHolders compares the holders with those of the leases.
func (m *machine) checkHolders(t *rapid.T, leases []Lease) {
	var want []SeenHolder
	for _, l := range leases {
		for _, h := range l.Holders {
			want = append(want, SeenHolder{l.Address, h})
		}
	}
	got, err := m.store.Holders(t.Context())
	must(t, err)
	inOrder := cmpopts.SortSlices(func(a, b SeenHolder) bool {
		return fmt.Sprint(a.Address, a.Holder.ContainerID, a.Holder.IfName) < fmt.Sprint(b.Address, b.Holder.ContainerID, b.Holder.IfName)
	})
	if diff := cmp.Diff(want, got, sameLease, inOrder); diff != "" {
		t.Fatalf("holders (-leases +store):\n%s", diff)
	}
}

// checkExhausted asks for the sets of all plans at once.
func (m *machine) checkExhausted(t *rapid.T) {
	var sets []RangeSet
	var want, got []string
	for _, p := range plans {
		for i := range p.sets {
			if !m.model.available(p, i) {
				want = append(want, fmt.Sprintf("range set %d ", len(sets)+i))
			}
		}
		sets = append(sets, p.sets...)
	}
	full, err := m.store.Exhausted(t.Context(), sets)
	must(t, err)
	for _, e := range full {
		name, _, _ := strings.Cut(e.Error(), "(")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("exhausted: %v, the model says %v", full, want)
	}
}

// checkUsage compares the numbers of each known set with a look at each address.
func (m *machine) checkUsage(t *rapid.T) {
	u, err := m.store.Usage(t.Context())
	must(t, err)
	leases := m.model.current()
	var want []SetUsage
	inside := map[netip.Addr]bool{}
	for _, p := range m.model.state.known {
		for i, set := range p.sets {
			if len(set) == 0 {
				continue // Now ADDs of another set ask for its addresses.
			}
			w := SetUsage{Set: i, Ranges: set, Size: big.NewInt(int64(len(p.gives[i])))}
			for _, a := range p.within[i] {
				inside[a] = true
				count := map[State]*int{Held: &w.Held, Reserved: &w.Reserved, Quarantined: &w.Quarantined}[leases[a].State]
				if count != nil && p.givesIt(a) {
					*count++
				}
			}
			w.Free = big.NewInt(int64(len(p.gives[i]) - w.Held - w.Reserved - w.Quarantined))
			w.Share = float64(w.Held+w.Reserved) / float64(len(p.gives[i]))
			want = append(want, w)
		}
	}
	outside := 0
	for a := range leases {
		if !inside[a] {
			outside++
		}
	}
	numbers := cmp.Options{cmpopts.IgnoreUnexported(SetUsage{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })}
	if diff := cmp.Diff(want, u.Sets, numbers); diff != "" || u.Outside != outside {
		t.Fatalf("%d outside, the model says %d (-model +store):\n%s", u.Outside, outside, diff)
	}
}

// TestStoreDoesAsItsModel runs 100 lives of a store of some 30 operations each. After each operation it compares the
// store with a model that has no index.
func TestStoreDoesAsItsModel(t *testing.T) {
	lives := 0
	disk := &machineDisk{disk: newDisk(t, "16M", minute), t: t}
	rapid.Check(t, func(rt *rapid.T) {
		lives++
		dir := filepath.Join(disk.mount, fmt.Sprint(lives))
		must(t, os.Mkdir(dir, 0o700))
		defer func() { must(t, os.RemoveAll(dir)) }() // It has the files of thousands of lives.
		defer disk.empty()
		m := newMachine(rt, dir, disk)
		disk.roomy = true
		rt.Repeat(map[string]func(*rapid.T){
			"ADD": m.add, "ADD too": m.add, "ADD also": m.add, "ADD as well": m.add, "DEL": m.del, "DEL too": m.del, "GC": m.gc,
			"settled": m.settled, "settled too": m.settled, "abandon": m.abandon, "reserve": m.reserve, "reserve too": m.reserve,
			"release": m.releaseByHand, "conflict": m.conflict, "crash": m.crash, "later": m.later, "later too": m.later,
			"reboot": m.reboot, "set the clock": m.setClock, "reset the clock": m.resetClock,
			"back up": m.backUp, "restore": m.restore, "add to the schema": m.addToStore,
			"copy with holes": m.copyWithHoles, "fill the disk": m.fillDisk, "fill the disk too": m.fillDisk, "empty the disk": m.emptyDisk, "": m.check,
		})
	})
	t.Logf("%d lives; the disk was full %d times, and %d changes found no room", lives, disk.fills, disk.refused)
}

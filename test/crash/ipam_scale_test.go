package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/ipam"
)

// seedEnv has the interleavings of a seed tried again.
const seedEnv = "RELINK_CRASH_SEED"

// seeded returns the seed of the test.
func seeded(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv(seedEnv)
	if s == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	must(t, err)
	return seed
}

// replicas is how many pods the StatefulSet has, and addresses the pool.
const replicas = 5

// set is a StatefulSet whose pods keep their addresses, beside pods that come and go and
// take what they get of the same ones.
type set struct {
	*pool
	t *testing.T
	r *rand.Rand
	// plain are the keys for the pods that are not the set's.
	plain string
	made  int
	// current are the pods' newest sandboxes, before those that were DELed or are to
	// be, each by its pod.
	current map[string]*holder
	before  []*holder
	// leases are what the store had after the last step.
	leases map[netip.Addr]ipam.Lease
	// steps is what was done, for whoever reads of a failure.
	steps []string
}

// holder is a sandbox.
type holder struct {
	claim
	// asks is the address that it asks for, if it does.
	asks netip.Addr
	// address is what its ADD said, if it succeeded.
	address netip.Addr
	// deleted says that its DEL has begun, superseded that its pod's next sandbox has
	// taken the address over.
	deleted, superseded bool
}

func (h *holder) isWeb() bool { return strings.HasPrefix(h.pod, "web-") }

// holds says whether the address has to be the sandbox's.
func (h *holder) holds() bool { return h.address.IsValid() && !h.deleted && !h.superseded }

// inMemory is a directory for what is not about disks.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// newSet is a set in a new store.
func newSet(t *testing.T, dir string, r *rand.Rand) *set {
	quarantine := []string{atOnce, plain}[r.IntN(2)]
	retain := []string{"", `"retain": "24h", `}[r.IntN(2)]
	return &set{
		pool:  &pool{dir: dir, network: "pods", keys: sticky + retain + quarantine + ranges(replicas)},
		plain: quarantine + ranges(replicas), t: t, r: r, current: map[string]*holder{},
	}
}

// sandbox is a new one of the pod.
func (s *set) sandbox(pod string) *holder {
	s.made++
	h := &holder{claim: s.claim(fmt.Sprintf("s%d", s.made), pod)}
	if !h.isWeb() {
		h.keys = s.plain
	}
	return h
}

// errorf reports a failure with all that led to it.
func (s *set) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter %s\nwith\n%s", fmt.Sprintf(format, args...), strings.Join(s.steps, ", "), strings.Join(s.pool.leases(s.t), "\n"))
}

// add attaches a new sandbox of the pod. Its last one may be there still.
func (s *set) add(pod string) {
	h := s.sandbox(pod)
	if !h.isWeb() && s.r.IntN(3) == 0 {
		h.asks = netip.AddrFrom4([4]byte{10, 7, 0, byte(10 + s.r.IntN(replicas))})
		h.args = ";IP=" + h.asks.String()
	}
	if last := s.current[pod]; last != nil {
		s.before = append(s.before, last)
	}
	s.current[pod] = h
	r, _, err := ipam.Add(s.t.Context(), h.skelArgs(""))
	if err == nil {
		h.address, _ = netip.AddrFromSlice(r.IPs[0].Address.IP)
	}
	s.steps = append(s.steps, fmt.Sprintf("ADD %s of %s%s: %s %v", h.id, pod, h.args, h.address, err))
	s.wasRight(h, s.leases, err)
	for _, b := range s.before {
		// Only the set's pods take over.
		b.superseded = b.superseded || h.isWeb() && b.pod == h.pod && b.address == h.address
	}
	s.look()
}

// wasRight says whether the ADD gave what it should have, of what there was.
func (s *set) wasRight(h *holder, was map[netip.Addr]ipam.Lease, err error) {
	own, free := netip.Addr{}, len(was) < replicas
	for a, l := range was {
		free = free || l.State == ipam.Quarantined
		if h.isWeb() && l.Owner == owner(h.pod) && l.State != ipam.Quarantined {
			own = a
		}
	}
	if lease, taken := was[h.asks]; h.asks.IsValid() {
		free = !taken || lease.State == ipam.Quarantined
	}
	switch lease, taken := was[h.address]; {
	case err == nil && h.asks.IsValid() && h.asks != h.address:
		s.errorf("%s asks for %s and gets %s", h.pod, h.asks, h.address)
	case err != nil && (free || own.IsValid() || !triesLater(err)):
		s.errorf("%s gets none: %v", h.pod, err)
	case err != nil:
	case own.IsValid() && h.address != own:
		s.errorf("%s gets %s, its own is %s", h.pod, h.address, own)
	case !own.IsValid() && taken && lease.State != ipam.Quarantined:
		s.errorf("%s gets %s, which was %s", h.pod, h.address, lease.Whose())
	}
}

func (s *set) byAddress() map[netip.Addr]ipam.Lease {
	all := map[netip.Addr]ipam.Lease{}
	for _, l := range s.list(s.t) {
		all[l.Address] = l
	}
	return all
}

// addAgain repeats the ADD of a sandbox.
func (s *set) addAgain(h *holder) {
	r, _, err := ipam.Add(s.t.Context(), h.skelArgs(""))
	s.steps = append(s.steps, fmt.Sprintf("ADD %s again: %v", h.id, err))
	if err != nil {
		s.errorf("its address is %s: %v", h.address, err)
	}
	if a, _ := netip.AddrFromSlice(r.IPs[0].Address.IP); a != h.address {
		s.errorf("its address is %s, now it is told %s", h.address, a)
	}
	s.look()
}

// del detaches the sandbox, perhaps not for the first time.
func (s *set) del(h *holder) {
	was := s.leases
	h.deleted = true
	s.steps = append(s.steps, "DEL "+h.id)
	if err := ipam.Del(s.t.Context(), h.skelArgs("")); err != nil {
		s.errorf("%v", err)
	}
	s.look()
	for a, l := range s.leases {
		if l.State == ipam.Held && was[a] != l {
			s.errorf("%s is held by %s then, and was by %s", a, l.Attachment, was[a].Attachment)
		}
		if l.Attachment.ContainerID == h.id && l.State == ipam.Held {
			s.errorf("%s is still its", a)
		}
	}
	for a, l := range was {
		if _, taken := s.leases[a]; taken {
			continue
		}
		if l.Attachment.ContainerID != h.id || l.State != ipam.Held || h.isWeb() {
			s.errorf("%s is free, and was %s", a, l.Whose())
		}
	}
}

// gc tells which sandboxes are there, or some of those that are to be DELed as well.
func (s *set) gc() {
	var valid []string
	for _, h := range s.everyone() {
		if !h.deleted {
			if h != s.current[h.pod] && s.r.IntN(2) == 0 {
				h.deleted = true // The runtime has forgotten it. Its DEL may come yet.
				continue
			}
			valid = append(valid, h.id)
		}
	}
	s.steps = append(s.steps, fmt.Sprint("GC valid ", valid))
	if err := ipam.GC(s.t.Context(), s.claim("", "").skelArgs(validAttachments(valid...))); err != nil {
		s.errorf("%v", err)
	}
	s.look()
}

// everyone is every sandbox that there ever was, but for those that failed.
func (s *set) everyone() []*holder {
	all := slices.Clone(s.before)
	for _, pod := range slices.Sorted(maps.Keys(s.current)) {
		all = append(all, s.current[pod])
	}
	return all
}

// look says that each sandbox has what is its own, and that nobody else has anything.
func (s *set) look() {
	s.leases = s.byAddress()
	told := map[netip.Addr]string{}
	for _, h := range s.everyone() {
		if !h.holds() {
			continue
		}
		if other, ok := told[h.address]; ok {
			s.errorf("%s has two holders, %s and %s", h.address, other, h.id)
		}
		told[h.address] = h.id
		if l := s.leases[h.address]; l.State != ipam.Held || l.Attachment.ContainerID != h.id || l.Owner != owner(h.pod) {
			s.errorf("%s was told %s, recorded is %+v", h.id, h.address, l)
		}
	}
	for a, l := range s.leases {
		if l.State == ipam.Held && told[a] == "" {
			s.errorf("%s is held by nobody known", a)
		}
	}
	if err := s.store(s.t).Verify(s.t.Context()); err != nil && len(s.leases) > 0 {
		s.errorf("%v", err)
	}
}

// pods are the set's.
func pods() []string {
	var names []string
	for i := range replicas {
		names = append(names, fmt.Sprintf("web-%d", i))
	}
	return names
}

// event is something that comes when it likes.
func (s *set) event() {
	switch s.r.IntN(6) {
	case 0, 1:
		if len(s.before) > 0 {
			s.del(s.before[s.r.IntN(len(s.before))])
		}
	case 2:
		s.add(fmt.Sprintf("other-%d", s.r.IntN(3)))
	case 3:
		if h := s.current[fmt.Sprintf("other-%d", s.r.IntN(3))]; h != nil {
			s.del(h)
		}
	case 4:
		if all := s.everyone(); len(all) > 0 {
			if h := all[s.r.IntN(len(all))]; h.holds() {
				s.addAgain(h)
			}
		}
	case 5:
		s.gc()
	}
}

// scale scales the set down and up again, in any order, while events come.
func (s *set) scale() {
	order := pods()
	s.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, pod := range order {
		// Some sandboxes are DELed at once, others when their successor is there.
		if h := s.current[pod]; h != nil && s.r.IntN(2) == 0 {
			s.del(h)
		}
		for s.r.IntN(2) == 0 {
			s.event()
		}
	}
	s.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, pod := range order {
		s.add(pod)
		for s.r.IntN(2) == 0 {
			s.event()
		}
	}
}

// finish ends all, in any order.
func (s *set) finish() {
	all := s.everyone()
	s.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, h := range all {
		if !h.deleted || s.r.IntN(3) == 0 {
			s.del(h)
		}
	}
	s.keys = s.plain
	s.allCanBeGiven(s.t, replicas)
}

// An address is its pod's through all of the set's scaling, and the others get what is
// nobody's.
func TestIPAMScaling(t *testing.T) {
	t.Parallel()
	interleavings := times(400)
	seed, dir := seeded(t), inMemory(t)
	for i := range interleavings {
		s := newSet(t, fmt.Sprintf("%s/%d", dir, i), rand.New(rand.NewPCG(seed, uint64(i))))
		s.steps = []string{fmt.Sprintf("%s=%d, interleaving %d, quarantine %s", seedEnv, seed, i, s.plain)}
		s.scale() // 0 to 5.
		s.scale()
		s.finish()
		total.interleavings.Add(1)
	}
}

// scramble is the same with everything at once.
type scramble struct {
	*pool
	plain string
	t     *testing.T
	// alone is for GC: no ADD or DEL is under way then, by the specification.
	alone sync.RWMutex

	mu sync.Mutex
	// valid are the sandboxes by their pods, holders those that were told an address
	// and have to have it.
	valid   map[string]string
	holders map[netip.Addr]string
}

// add attaches a sandbox of the pod and returns its address, none if none was free. Its
// last sandbox, if there is one, had the address had before.
func (s *scramble) add(c claim, had netip.Addr) netip.Addr {
	s.alone.RLock()
	defer s.alone.RUnlock()
	s.locked(func() { s.valid[c.id] = c.pod })
	r, _, err := ipam.Add(s.t.Context(), c.skelArgs(""))
	if err != nil {
		if had.IsValid() || !triesLater(err) {
			s.t.Errorf("%s, %s had %s: %v", c.id, c.pod, had, err)
		}
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(r.IPs[0].Address.IP)
	if had.IsValid() && had != a {
		s.t.Errorf("%s gets %s, %s had %s", c.id, a, c.pod, had)
	}
	s.locked(func() {
		if other, ok := s.holders[a]; ok && s.valid[other] != c.pod {
			s.t.Errorf("%s is told to %s and is that of %s", a, c.id, other)
		}
		s.holders[a] = c.id
	})
	l, err := s.store(s.t).Get(s.t.Context(), a)
	if err != nil || !l.HeldBy(l.Attachment) || l.Attachment.ContainerID != c.id {
		s.t.Errorf("%s was told %s, recorded is %+v: %v", c.id, a, l, err)
	}
	return a
}

func (s *scramble) del(c claim) {
	s.alone.RLock()
	defer s.alone.RUnlock()
	s.locked(func() { maps.DeleteFunc(s.holders, func(_ netip.Addr, id string) bool { return id == c.id }) })
	if err := ipam.Del(s.t.Context(), c.skelArgs("")); err != nil {
		s.t.Errorf("%s: %v", c.id, err)
	}
	s.locked(func() { delete(s.valid, c.id) })
}

func (s *scramble) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// gc runs with the list of what is valid, and looks, as nothing else is under way.
func (s *scramble) gc() {
	s.alone.Lock()
	defer s.alone.Unlock()
	ids := slices.Collect(maps.Keys(s.valid))
	if err := ipam.GC(s.t.Context(), s.claim("", "").skelArgs(validAttachments(ids...))); err != nil {
		s.t.Error(err)
	}
	for a, id := range s.holders {
		l, err := s.store(s.t).Get(s.t.Context(), a)
		if err != nil || l.State != ipam.Held || l.Attachment.ContainerID != id {
			s.t.Errorf("%s was told %s, recorded is %+v: %v", id, a, l, err)
		}
	}
	if err := s.store(s.t).Verify(s.t.Context()); err != nil && len(s.holders) > 0 {
		s.t.Error(err)
	}
}

// web is a pod of the set: the next sandbox comes before, while or after the last goes.
func (s *scramble) web(pod string, r *rand.Rand) {
	var had netip.Addr
	var last *claim
	var late sync.WaitGroup
	defer late.Wait()
	for i := range 3 {
		c := s.claim(fmt.Sprintf("%s-%d", pod, i), pod)
		if last != nil {
			gone, times := *last, 1+r.IntN(3)
			dels := func() {
				for range times {
					s.del(gone)
				}
			}
			if r.IntN(3) == 0 {
				dels()
			} else {
				late.Go(dels)
			}
		}
		if a := s.add(c, had); a.IsValid() {
			had = a
		}
		last = &c
	}
	late.Go(func() { s.del(*last) })
}

// other is a pod that is not of the set.
func (s *scramble) other(pod string, r *rand.Rand) {
	for i := range 4 {
		c := s.claim(fmt.Sprintf("%s-%d", pod, i), pod)
		c.keys = s.plain
		s.add(c, netip.Addr{})
		for range 1 + r.IntN(2) {
			s.del(c)
		}
	}
}

// TestIPAMScalingAtOnce is TestIPAMScaling where the kernel chooses the interleaving.
func TestIPAMScalingAtOnce(t *testing.T) {
	t.Parallel()
	runs := times(100)
	seed, dir := seeded(t), inMemory(t)
	for i := range runs {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		from := newSet(t, fmt.Sprintf("%s/%d", dir, i), r)
		s := &scramble{pool: from.pool, plain: from.plain, t: t, valid: map[string]string{}, holders: map[netip.Addr]string{}}
		var all sync.WaitGroup
		for _, pod := range pods() {
			r := rand.New(rand.NewPCG(r.Uint64(), 0))
			all.Go(func() { s.web(pod, r) })
		}
		for j := range 3 {
			r := rand.New(rand.NewPCG(r.Uint64(), 1))
			all.Go(func() { s.other(fmt.Sprintf("other-%d", j), r) })
		}
		all.Go(func() {
			for range 3 {
				s.gc()
			}
		})
		all.Wait()
		s.gc()
		if len(s.holders) > 0 {
			t.Errorf("left: %v", s.holders)
		}
		s.keys = s.plain
		s.allCanBeGiven(t, replicas)
		if t.Failed() {
			t.Fatalf("%s=%d, run %d, %s", seedEnv, seed, i, s.plain)
		}
		total.interleavings.Add(1)
	}
}

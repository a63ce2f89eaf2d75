package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// seedEnv is the environment variable for the seed whose orders of steps are to be tried again.
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

// replicas is the number of pods in the StatefulSet, and of addresses in the pool.
const replicas = 5

// set is a StatefulSet whose pods keep their addresses. Beside it, other pods come and go and take addresses of the
// same pool.
type set struct {
	*pool
	t *testing.T
	r *rand.Rand
	// plain are the keys for the pods outside of the set. retain is how long an address of the set waits for its pod, 0
	// for ever.
	plain  string
	retain time.Duration
	made   int
	// all has every sandbox that ever existed, in the order of their ADDs.
	all []*holder
	// current has the newest attached sandbox of each pod.
	current map[string]*holder
	// leases are the leases in the store after the last step.
	leases map[netip.Addr]lease.Lease
	// steps says what was done, for the report of a failure.
	steps []string
}

// holder is a sandbox.
type holder struct {
	claim
	// asks is the address that the sandbox asks for, if any.
	asks netip.Addr
	// address is what relink-ipam gave it, if anything.
	address netip.Addr
	// failed says that its ADD failed later, such as in the interface plugin.
	failed bool
	// deleted says that its DEL has begun, or that the runtime has forgotten it.
	deleted bool
	// result is the output of its ADD.
	result string
}

func (h *holder) isWeb() bool { return strings.HasPrefix(h.pod, "web-") }

// holds reports whether the sandbox must have its address.
func (h *holder) holds() bool { return h.address.IsValid() && !h.deleted }

// newSet returns a set in a new store.
func newSet(t *testing.T, dir string, r *rand.Rand) *set {
	quarantine := []string{atOnce, plain}[r.IntN(2)]
	retain := []time.Duration{0, 24 * time.Hour}[r.IntN(2)]
	keys := sticky
	if retain > 0 {
		keys += fmt.Sprintf(`"retain": %q, `, retain)
	}
	return &set{
		pool:  &pool{dir: dir, network: "pods", keys: keys + quarantine + ranges(replicas)},
		plain: quarantine + ranges(replicas), retain: retain, t: t, r: r, current: map[string]*holder{},
	}
}

// sandbox returns a new sandbox of the pod.
func (s *set) sandbox(pod string) *holder {
	s.made++
	h := &holder{claim: s.claim(fmt.Sprintf("s%d", s.made), pod)}
	if !h.isWeb() {
		h.keys = s.plain
	}
	return h
}

// errorf reports a failure with all the steps that led to it.
func (s *set) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter %s\nwith\n%s", fmt.Sprintf(format, args...), strings.Join(s.steps, ", "), strings.Join(s.pool.leases(s.t), "\n"))
}

// add attaches a new sandbox of the pod. The pod's last sandbox may still exist. The ADD may fail after relink-ipam has
// given the address. If it succeeds, relink-ipam may be told so. A plugin that executes relink-ipam cannot tell it, so
// sometimes it is not told.
func (s *set) add(pod string) {
	h := s.sandbox(pod)
	h.failed = s.r.IntN(4) == 0
	settles := s.r.IntN(2) == 0
	if !h.isWeb() && s.r.IntN(3) == 0 {
		h.asks = netip.AddrFrom4([4]byte{10, 7, 0, byte(10 + s.r.IntN(replicas))})
		h.args = ";IP=" + h.asks.String()
	}
	g, err := h.call(s.t).Add(s.t.Context())
	if err == nil {
		h.address, _ = netip.AddrFromSlice(g.Result.IPs[0].Address.IP)
		b, err := json.Marshal(g.Result)
		must(s.t, err)
		h.result = string(b)
	}
	s.steps = append(s.steps, fmt.Sprintf("ADD %s of %s%s: %s %v", h.id, pod, h.args, h.address, err))
	s.wasRight(h, s.leases, err)
	s.all = append(s.all, h)
	s.look()
	switch {
	case h.failed:
		s.steps = append(s.steps, h.id+" fails then")
		for _, before := range s.all {
			if before.pod == pod {
				s.check(before)
			}
		}
	case err == nil && settles:
		s.settle(h, g)
	}
	if !h.failed {
		s.current[pod] = h
	}
}

// check runs a CHECK of a sandbox, if it is attached.
func (s *set) check(h *holder) {
	if !h.holds() || h.failed {
		return
	}
	if err := ipam.Detached(s.t.Context(), (*ipam.Call).Check, h.skelArgs(`, "prevResult": `+h.result)); err != nil {
		s.errorf("CHECK of %s: %v", h.id, err)
	}
}

// settle tells relink-ipam that the sandbox's whole ADD has succeeded.
func (s *set) settle(h *holder, g *ipam.Grant) {
	s.steps = append(s.steps, h.id+" is settled")
	if err := g.Commit(s.t.Context()); err != nil {
		s.errorf("%v", err)
	}
	s.look() // The earlier sandboxes still exist, so they keep their hold.
}

// call returns a call of relink-ipam as an interface plugin makes it, in this process.
func (c claim) call(t *testing.T) *ipam.Call {
	t.Helper()
	var config cniplugin.Network
	args := c.skelArgs("")
	must(t, cniplugin.Decode(args.StdinData, &config))
	return ipam.New(args, config, nil)
}

// wasRight checks what the ADD gave. was are the leases before it.
func (s *set) wasRight(h *holder, was map[netip.Addr]lease.Lease, err error) {
	own, free := netip.Addr{}, len(was) < replicas
	for a, l := range was {
		free = free || l.State == lease.Quarantined
		if h.isWeb() && l.Owner == owner(h.pod) && l.State != lease.Quarantined {
			own = a
		}
	}
	if l, taken := was[h.asks]; h.asks.IsValid() {
		free = !taken || l.State == lease.Quarantined
	}
	switch l, taken := was[h.address]; {
	case err == nil && h.asks.IsValid() && h.asks != h.address:
		s.errorf("%s asks for %s and gets %s", h.pod, h.asks, h.address)
	case err != nil && (free || own.IsValid() || !triesLater(err)):
		s.errorf("%s gets none: %v", h.pod, err)
	case err != nil:
	case own.IsValid() && h.address != own:
		s.errorf("%s gets %s, its own is %s", h.pod, h.address, own)
	case !own.IsValid() && taken && l.State != lease.Quarantined:
		s.errorf("%s gets %s, which was %s", h.pod, h.address, l.Describe())
	}
}

func (s *set) byAddress() map[netip.Addr]lease.Lease {
	all := map[netip.Addr]lease.Lease{}
	for _, l := range s.list(s.t) {
		all[l.Address] = l
	}
	return all
}

// addAgain repeats the ADD of a sandbox.
func (s *set) addAgain(h *holder) {
	g, err := h.call(s.t).Add(s.t.Context())
	s.steps = append(s.steps, fmt.Sprintf("ADD %s again: %v", h.id, err))
	if err != nil {
		s.errorf("its address is %s: %v", h.address, err)
	}
	if a, _ := netip.AddrFromSlice(g.Result.IPs[0].Address.IP); a != h.address {
		s.errorf("its address is %s, now it is told %s", h.address, a)
	}
	s.look()
	if s.r.IntN(2) == 0 {
		s.settle(h, g)
	}
}

// del detaches the sandbox, perhaps not for the first time.
func (s *set) del(h *holder) {
	was := s.leases
	held := h.holds()
	h.deleted = true
	s.steps = append(s.steps, "DEL "+h.id)
	if err := ipam.Detached(s.t.Context(), (*ipam.Call).Del, h.skelArgs("")); err != nil {
		s.errorf("%v", err)
	}
	s.look()
	for a, l := range was {
		if _, taken := s.leases[a]; !taken && (a != h.address || !held || h.isWeb()) {
			s.errorf("%s is free, and was %s", a, l.Describe())
		}
	}
}

// gc sends the list of attached sandboxes. It leaves out some for which a DEL is still to come.
func (s *set) gc() {
	var valid []string
	for _, h := range s.all {
		if !h.deleted {
			if h != s.current[h.pod] && s.r.IntN(2) == 0 {
				h.deleted = true // The runtime has forgotten it. Its DEL may still come.
				continue
			}
			valid = append(valid, h.id)
		}
	}
	s.steps = append(s.steps, fmt.Sprint("GC valid ", valid))
	if err := ipam.Detached(s.t.Context(), (*ipam.Call).GC, s.claim("", "").skelArgs(validAttachments(valid...))); err != nil {
		s.errorf("%v", err)
	}
	s.look()
}

// wait lets more time pass than any limited reservation lasts.
func (s *set) wait() {
	s.steps = append(s.steps, "two days pass")
	s.passes(s.t, 48*time.Hour)
	s.look()
	for a, l := range s.leases {
		if ends := l.State == lease.Quarantined || l.State == lease.Reserved && s.retain > 0; ends {
			s.errorf("%s is still %s", a, l.Describe())
		}
	}
}

// look expects that each sandbox has its address, and shares it only with sandboxes of the same pod that took it over.
// Nobody else may have anything.
func (s *set) look() {
	s.leases = s.byAddress()
	holders := map[netip.Addr][]string{}
	for _, h := range s.all {
		if !h.holds() {
			continue
		}
		holders[h.address] = append(holders[h.address], h.id)
		if l := s.leases[h.address]; l.State != lease.Held || l.Owner != owner(h.pod) {
			s.errorf("%s of %s was told %s, recorded is %+v", h.id, h.pod, h.address, l)
		}
	}
	for a, l := range s.leases {
		if got := holderIDs(l); !slices.Equal(got, holders[a]) {
			s.errorf("%s is held by %v, want %v", a, got, holders[a])
		}
	}
	if err := s.store(s.t).Verify(s.t.Context()); err != nil && len(s.leases) > 0 {
		s.errorf("%v", err)
	}
	if len(s.all) > 0 {
		s.check(s.all[s.r.IntN(len(s.all))])
	}
}

// pods returns the names of the set's pods.
func pods() []string {
	var names []string
	for i := range replicas {
		names = append(names, fmt.Sprintf("web-%d", i))
	}
	return names
}

// gone returns the sandboxes that are not the newest of their pods, and those whose ADD failed. Their DELs come late,
// more than once, or never.
func (s *set) gone() []*holder {
	return slices.DeleteFunc(slices.Clone(s.all), func(h *holder) bool { return h == s.current[h.pod] })
}

// event does one thing that can happen at any time.
func (s *set) event() {
	switch s.r.IntN(7) {
	case 0, 1:
		if gone := s.gone(); len(gone) > 0 {
			s.del(gone[s.r.IntN(len(gone))])
		}
	case 2:
		s.add(fmt.Sprintf("other-%d", s.r.IntN(3)))
	case 3:
		if h := s.current[fmt.Sprintf("other-%d", s.r.IntN(3))]; h != nil {
			s.del(h)
		}
	case 4:
		if len(s.all) > 0 {
			if h := s.all[s.r.IntN(len(s.all))]; h.holds() && !h.failed {
				s.addAgain(h)
			}
		}
	case 5:
		s.gc()
	case 6:
		if len(s.all) > 0 {
			s.wait()
		}
	}
}

// scale scales the set down and up again, in any order, while events come.
func (s *set) scale() {
	order := pods()
	s.r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, pod := range order {
		// Some sandboxes get their DEL at once, others after their successor has come.
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

// finish detaches everything, in any order.
func (s *set) finish() {
	all := slices.Clone(s.all)
	s.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, h := range all {
		if !h.deleted || s.r.IntN(3) == 0 {
			s.del(h)
		}
	}
	s.keys = s.plain
	s.allCanBeGiven(s.t, replicas)
}

// A pod of the set keeps its address whenever the set is scaled. The other pods get only addresses that belong to
// nobody.
func TestIPAMScaling(t *testing.T) {
	t.Parallel()
	interleavings := times(60)
	seed, dir := seeded(t), fresh.InMemory(t)
	for i := range interleavings {
		s := newSet(t, fmt.Sprintf("%s/%d", dir, i), rand.New(rand.NewPCG(seed, uint64(i))))
		s.steps = []string{fmt.Sprintf("%s=%d, interleaving %d, quarantine %s", seedEnv, seed, i, s.plain)}
		s.scale() // From 0 to 5.
		s.scale()
		s.finish()
		total.interleavings.Add(1)
	}
}

package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// scramble is a set whose pods all work at the same time.
type scramble struct {
	*pool
	plain string
	t     *testing.T
	// alone is for GC: the specification allows no ADD or DEL during a GC.
	alone sync.RWMutex

	mu sync.Mutex
	// valid has the pod of each attached sandbox. told has each sandbox that was told an address and must still have
	// it.
	valid map[string]string
	told  map[string]netip.Addr
}

// add attaches a sandbox of the pod and returns its address, or none if none was free. had is the address of the pod's
// last sandbox, if there is one. With fails, the ADD fails after relink-ipam gave the address. With settles,
// relink-ipam is told that the ADD has succeeded.
func (s *scramble) add(c claim, had netip.Addr, fails, settles bool) netip.Addr {
	s.alone.RLock()
	defer s.alone.RUnlock()
	s.locked(func() { s.valid[c.id] = c.pod })
	g, err := c.call(s.t).Add(s.t.Context())
	if err != nil {
		if had.IsValid() || !triesLater(err) {
			s.t.Errorf("%s, %s had %s: %v", c.id, c.pod, had, err)
		}
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(g.Result.IPs[0].Address.IP)
	if had.IsValid() && had != a {
		s.t.Errorf("%s gets %s, %s had %s", c.id, a, c.pod, had)
	}
	s.locked(func() {
		for other, has := range s.told {
			if has == a && s.valid[other] != c.pod {
				s.t.Errorf("%s is told to %s and is that of %s", a, c.id, other)
			}
		}
		if !fails {
			s.told[c.id] = a
		}
	})
	s.has(c.id, a)
	if !fails && settles {
		s.settle(c, g, a)
	}
	return a
}

// settle says that the ADD has succeeded. The pod's earlier sandboxes still exist, so they keep their hold.
func (s *scramble) settle(c claim, g *ipam.Grant, a netip.Addr) {
	if err := g.Commit(s.t.Context()); err != nil {
		s.t.Errorf("%s: %v", c.id, err)
	}
	s.has(c.id, a)
}

// has checks that the sandbox holds the address in the store.
func (s *scramble) has(id string, a netip.Addr) {
	l, err := s.store(s.t).Get(s.t.Context(), a)
	if err != nil || !slices.Contains(holderIDs(l), id) {
		s.t.Errorf("%s was told %s, recorded is %+v: %v", id, a, l, err)
	}
}

func (s *scramble) del(c claim) {
	s.alone.RLock()
	defer s.alone.RUnlock()
	s.locked(func() { delete(s.told, c.id) })
	if err := ipam.Detached(s.t.Context(), (*ipam.Call).Del, c.skelArgs("")); err != nil {
		s.t.Errorf("%s: %v", c.id, err)
	}
	s.locked(func() { delete(s.valid, c.id) })
}

func (s *scramble) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// gc runs a GC with the list of valid sandboxes. Nothing else runs meanwhile, so it also checks the store.
func (s *scramble) gc() {
	s.alone.Lock()
	defer s.alone.Unlock()
	var ids []string
	s.locked(func() { ids = slices.Collect(maps.Keys(s.valid)) }) // The runtime may have forgotten any of the others.
	if err := ipam.Detached(s.t.Context(), (*ipam.Call).GC, s.claim("", "").skelArgs(validAttachments(ids...))); err != nil {
		s.t.Error(err)
	}
	for id, a := range s.told {
		s.has(id, a)
	}
	if err := s.store(s.t).Verify(s.t.Context()); err != nil && !errors.Is(err, lease.ErrNotLeased) {
		s.t.Error(err)
	}
}

// web is a pod of the set. Its next sandbox comes before, while or after the last one goes. Some ADDs fail. Their DELs
// come like the others, or never: then the next GC cleans up.
func (s *scramble) web(pod string, r *rand.Rand) {
	var had netip.Addr
	var last *claim
	var late sync.WaitGroup
	defer late.Wait()
	for i := range 5 {
		c := s.claim(fmt.Sprintf("%s-%d", pod, i), pod)
		fails, settles, forgotten := r.IntN(3) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		dels := 1 + r.IntN(3)
		if last != nil && !fails {
			gone := *last
			goes := func() {
				for range dels {
					s.del(gone)
				}
			}
			if r.IntN(3) == 0 {
				goes()
			} else {
				late.Go(goes)
			}
		}
		if a := s.add(c, had, fails, settles); a.IsValid() {
			had = a
		}
		switch {
		case !fails:
			last = &c
		case forgotten:
			s.locked(func() { delete(s.valid, c.id) })
		default:
			late.Go(func() { s.del(c) })
		}
	}
	if last != nil {
		late.Go(func() { s.del(*last) })
	}
}

// other is a pod outside of the set.
func (s *scramble) other(pod string, r *rand.Rand) {
	for i := range 4 {
		c := s.claim(fmt.Sprintf("%s-%d", pod, i), pod)
		c.keys = s.plain
		s.add(c, netip.Addr{}, false, r.IntN(2) == 0)
		for range 1 + r.IntN(2) {
			s.del(c)
		}
	}
}

// TestIPAMScalingAtOnce is like TestIPAMScaling, but the kernel chooses the order of the steps.
func TestIPAMScalingAtOnce(t *testing.T) {
	t.Parallel()
	runs := times(30)
	seed, dir := seeded(t), fresh.InMemory(t)
	for i := range runs {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		from := newSet(t, fmt.Sprintf("%s/%d", dir, i), r)
		s := &scramble{pool: from.pool, plain: from.plain, t: t, valid: map[string]string{}, told: map[string]netip.Addr{}}
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
		if len(s.told) > 0 {
			t.Errorf("left: %v", s.told)
		}
		s.keys = s.plain
		s.allCanBeGiven(t, replicas)
		if t.Failed() {
			t.Fatalf("%s=%d, run %d, %s", seedEnv, seed, i, s.plain)
		}
		total.interleavings.Add(1)
	}
}

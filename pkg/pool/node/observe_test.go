package node

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// A node acts on the spec of the pools that it uses, and on what any pool has lost. Annotations of others and the status are nothing of that.
func TestWhatOfAPoolConcernsANode(t *testing.T) {
	base := lan
	base.Metadata.UID, base.Metadata.Annotations, base.Status.Sequence = "1", map[string]string{"other": "a"}, 5
	recovering := base.WithRecovery(&pool.Recovery{})
	for name, test := range map[string]struct {
		before, after func(*pool.Pool)
		used, unused  bool
	}{
		"nothing, told again":     {nil, func(*pool.Pool) {}, false, false},
		"a status":                {nil, func(p *pool.Pool) { p.Status.Sequence = 6 }, false, false},
		"an older status":         {nil, func(p *pool.Pool) { p.Status.Sequence = 4 }, true, true},
		"a finalizer":             {nil, func(p *pool.Pool) { p.Metadata.Finalizers = []string{pool.Finalizer} }, false, false},
		"somebody's annotation":   {nil, func(p *pool.Pool) { p.Metadata.Annotations = map[string]string{"other": "b"} }, false, false},
		"the spec":                {nil, func(p *pool.Pool) { p.Spec.Gateway = "10.3.0.9" }, true, false},
		"the end":                 {nil, func(p *pool.Pool) { p.Metadata.DeletionTimestamp = "now" }, true, false},
		"another of the name":     {nil, func(p *pool.Pool) { p.Metadata.UID = "2" }, true, false},
		"a recovery":              {nil, func(p *pool.Pool) { *p = recovering }, true, true},
		"a recovery goes on":      {func(p *pool.Pool) { *p = recovering }, func(p *pool.Pool) { *p = recovering }, false, false},
		"it is known":             {func(p *pool.Pool) { *p = pool.Pool{} }, func(*pool.Pool) {}, false, false},
		"it is new, and recovers": {func(p *pool.Pool) { *p = pool.Pool{} }, func(p *pool.Pool) { *p = recovering }, true, true},
	} {
		s := newTestNode(t)
		s.known = map[string]knownStore{"pods": {id: "1", pools: []string{"lan"}}, "other": {}}
		s.acceptSequence(base)
		_, err := s.cacheLayout(base)
		s.noError(err)
		before, after := base, base
		if test.before != nil {
			test.before(&before)
		}
		test.after(&after)
		last := &before
		if before.Metadata.Name == "" {
			last = nil
		}
		used := s.actsOn(last, after)
		s.known = map[string]knownStore{"pods": {id: "1", pools: []string{"wan"}}}
		if unused := s.actsOn(last, after); used != test.used || unused != test.unused {
			t.Errorf("%s: it concerns a node that uses the pool: %t, another one: %t", name, used, unused)
		}
	}
}

// A node with many networks asks the API once for what it has, and once for each of its blocks. Pools of others cost it nothing.
func TestRequestsOfAStart(t *testing.T) {
	const networks, others = 40, 400
	s := newTestNode(t)
	for i := range others + networks {
		p := lan
		p.Metadata.Name, p.Spec.Ranges = fmt.Sprint("pool", i), nil
		p.Spec.Subnet = fmt.Sprintf("10.%d.%d.0/28", 64+i/256, i%256)
		s.AddPool(p)
	}
	for i := range networks {
		sc, err := s.Controller.storeController(fmt.Sprint("net", i))
		s.noError(err)
		s.noError(sc.store.SetPools(t.Context(), []string{fmt.Sprint("pool", i)}))
		s.noError(sc.balance(t.Context()))
	}
	s.noError(s.balance(t.Context()))
	s.restart(s.Dir)
	before := len(s.Requests())
	if !s.usesPools(t.Context()) {
		t.Fatal("the node has no pool")
	}
	q := newQueue()
	s.do(t.Context(), q, task{})
	pools, err := s.Pools(t.Context())
	s.noError(err)
	blocks, err := s.BlocksOf(t.Context(), s.name)
	s.noError(err)
	h := s.handler(q)
	for i := range pools {
		h.PoolChanged(nil, &pools[i])
	}
	for i := range blocks {
		h.BlockChanged(nil, &blocks[i])
	}
	for q.Len() > 0 {
		one, _ := q.Get()
		s.do(t.Context(), q, one)
		q.Done(one)
	}
	q.ShutDown()
	count := map[string]int{}
	for _, r := range s.Requests()[before:] {
		verb, what, _ := strings.Cut(r, " ")
		kind, _, _ := strings.Cut(what, " ")
		count[verb+" "+kind]++
	}
	// A list of pools and one of blocks are the test's own.
	want := map[string]int{"get node": 1, "list pools": 3, "list blocks": 2, "list claims": 1, "get block": len(blocks)}
	if !maps.Equal(count, want) {
		t.Errorf("the requests are %v, want %v: %q", count, want, s.Requests()[before:])
	}
}

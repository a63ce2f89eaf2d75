package node

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

// overlapModel is three nodes on one API with pools that overlap. People change the pools, and agents end, at any request.
type overlapModel struct {
	*pooltest.API
	*rapid.T
	nodes []*overlapNode
	pods  int
	// after is how many requests later something happens.
	after     int
	meanwhile func()
	journal   []string
	log       strings.Builder
	gives     map[string]int
	time      time.Time
}

// overlapNode is a node of a street. ends says that its agent has been killed.
type overlapNode struct {
	*storeController
	name, dir string
	pods      []podLease
	busy      bool
	ends      bool
}

// podLease is a pod with an address.
type podLease struct {
	key     attachment.Key
	address netip.Addr
}

// ranges are what people add to pools, in this order. Each overlaps some of another pool, and has blocks that another pool has in part.
var ranges = map[string][]string{
	"old":   {"10.3.0.64-10.3.0.67", "10.3.0.0-10.3.0.15", "10.3.0.34-10.3.0.41"},
	"young": {"10.3.0.0-10.3.0.5", "10.3.0.8-10.3.0.13", "10.3.0.32-10.3.0.39"},
	"third": {"10.3.0.36-10.3.0.43", "10.3.0.60-10.3.0.67"},
}

func newOverlapModel(t *rapid.T, dir string) *overlapModel {
	s := &overlapModel{T: t, gives: map[string]int{}, time: time.Now()}
	s.API = &pooltest.API{BeforeRequest: s.beforeRequest}
	for i := range 3 {
		n := &overlapNode{name: fmt.Sprint("node", i+1), dir: fmt.Sprint(dir, "/", i)}
		s.AddNode(pool.Node{Name: n.name, UID: "uid-" + n.name})
		s.restart(n)
		s.nodes = append(s.nodes, n)
	}
	s.makePool("old")
	return s
}

// restart starts the agent of a node anew.
func (s *overlapModel) restart(n *overlapNode) {
	nc := New(Config{API: s.API, Node: n.name, Dir: n.dir, Log: slog.New(slog.NewTextHandler(io.Writer(&s.log), nil)), Settling: 1})
	nc.clock = func() time.Time { return s.time }
	sc, err := nc.storeController("pods")
	must(s, err)
	n.storeController, n.ends = sc, false
	_, err = nc.API.Pools(s.Context())
	must(s, err)
	s.time = s.time.Add(time.Second)
}

// beforeRequest lets happen what is due at a request.
func (s *overlapModel) beforeRequest(string) error {
	if s.after--; s.after == 0 {
		s.meanwhile()
	}
	for _, n := range s.nodes {
		if n.busy && n.ends {
			return errAway
		}
	}
	return nil
}

func (s *overlapModel) note(format string, args ...any) {
	s.journal = append(s.journal, fmt.Sprintf(format, args...))
}

// makePool makes a pool with its first range.
func (s *overlapModel) makePool(name string) {
	if _, err := s.Pool(s.Context(), name); err == nil {
		return
	}
	s.note("a person makes %s", name)
	made := fmt.Sprintf("2026-01-01T00:00:%02dZ", len(s.journal)%60)
	s.AddPool(pool.Pool{Metadata: pool.Meta{Name: name, CreationTimestamp: made}, Spec: pool.Spec{Subnet: "10.3.0.0/24", Ranges: ranges[name][:1], BlockSize: 4}})
}

// change has a person change a pool.
func (s *overlapModel) change(name, how string) {
	if _, err := s.Pool(s.Context(), name); err != nil {
		s.makePool(name)
		return
	}
	s.note("a person changes %s: %s", name, how)
	s.EditPool(name, func(p *pool.Pool) {
		switch n := len(p.Spec.Ranges); {
		case how == "add" && n < len(ranges[name]):
			p.Spec.Ranges = ranges[name][:n+1]
		case how == "break":
			p.Spec.Exclude = []string{"10.9.0.0/24"}
		case how == "correct":
			p.Spec.Exclude = nil
		}
	})
}

// add is an ADD of a pod on the node.
func (s *overlapModel) add(n *overlapNode, name string) {
	s.pods++
	r := lease.Request{Attachment: attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", s.pods), IfName: "eth0"}, Pools: []string{name}, Probes: true}
	all, err := n.store.Allocate(s.Context(), r)
	if err != nil {
		s.time = s.time.Add(time.Second)
		if _, err := n.supplyInTurn(s.Context(), name, true); err != nil {
			s.note("%s: no pod of %s: %v", n.name, name, err)
			return
		}
		all, err = n.store.Allocate(s.Context(), r)
	}
	if err != nil {
		s.note("%s: no pod of %s: %v", n.name, name, err)
		return
	}
	s.note("%s: a pod of %s has %s", n.name, name, all[0].Address)
	s.gives[name]++
	n.pods = append(n.pods, podLease{r.Attachment, all[0].Address})
}

// step draws what happens next, and what happens in the middle of it.
func (s *overlapModel) step(depth int) {
	person := rapid.IntRange(0, 9).Draw(s.T, "who") < 3
	if person {
		s.change(rapid.SampledFrom([]string{"old", "young", "third"}).Draw(s.T, "pool"), rapid.SampledFrom([]string{"add", "add", "break", "correct", "correct"}).Draw(s.T, "how"))
		return
	}
	n := s.nodes[rapid.IntRange(0, 2).Draw(s.T, "node")]
	if n.busy {
		return
	}
	if depth == 0 && rapid.Bool().Draw(s.T, "meets") {
		s.after = rapid.IntRange(1, 9).Draw(s.T, "after")
		s.meanwhile = func() {
			if rapid.IntRange(0, 3).Draw(s.T, "ends") == 0 {
				s.note("%s: the agent ends", n.name)
				n.ends = true
				return
			}
			for range rapid.IntRange(1, 3).Draw(s.T, "steps") {
				s.step(depth + 1)
			}
		}
	}
	n.busy = true
	switch name := rapid.SampledFrom([]string{"old", "young", "third"}).Draw(s.T, "pool"); rapid.IntRange(0, 5).Draw(s.T, "what") {
	case 0:
		if len(n.pods) > 0 {
			s.note("%s: the pod with %s ends", n.name, n.pods[0].address)
			must(s, n.store.Release(s.Context(), n.pods[0].key, lease.Policy{}))
			n.pods = n.pods[1:]
		}
	case 1:
		s.time = s.time.Add(time.Hour)
		s.note("%s: the agent looks: %v, %v", n.name, n.sync(s.Context()), n.balance(s.Context()))
	default:
		s.add(n, name)
	}
	if n.busy = false; n.ends {
		s.restart(n)
	}
}

// checkUnique fails if two pods have one address.
func (s *overlapModel) checkUnique() {
	has := map[netip.Addr]string{}
	for _, n := range s.nodes {
		for _, p := range n.pods {
			if has[p.address] != "" {
				s.Fatalf("%s is of a pod on %s and of one on %s:\n%s\n%s", p.address, has[p.address], n.name, strings.Join(s.journal, "\n"), s.log.String())
			}
			has[p.address] = n.name
		}
	}
}

// Whatever ranges people add to pools that overlap, in any order, with specs that are wrong for a while, and with agents that end at any
// request: no address has two pods.
func TestPoolsThatOverlapGiveNoAddressTwice(t *testing.T) {
	gives := map[string]int{}
	checkUntil(t, func(r *rapid.T) {
		s := newOverlapModel(r, t.TempDir())
		for range 60 {
			s.step(0)
			s.after = 0
			s.checkUnique()
		}
		for name, n := range s.gives {
			gives[name] += n
		}
	}, gives, "old", "young", "third") // Without each pool, this shows nothing.
	t.Log(gives)
}

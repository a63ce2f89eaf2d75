package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// everyOrder has a pod that is made again under its name. What still comes for its old sandbox comes in every order with the
// ADD of the new one: the DEL, a GC with a list from before, a pass. Whatever comes when, the new sandbox has the address,
// and nobody else can get it.
func everyOrder(t *testing.T, s *rowState) {
	set := s.set(t, "orders", 100)
	var all [][]string
	permute([]string{"ADD", "DEL", "GC", "pass"}, nil, func(order []string) { all = append(all, order) })
	last := 1
	for i, order := range all {
		for k, way := range ways {
			// In turn, so that each way meets each place of each step. make test-long has all.
			if os.Getenv("RELINK_LONG") == "" && k != (i+i/4)%len(ways) {
				continue
			}
			last++
			t.Run(fmt.Sprintf("%s, %s", strings.Join(order, " "), way.name), func(t *testing.T) { s.order(t, set, order, way, last) })
		}
	}
}

// way is what becomes of the old sandbox, and what a GC knows.
type way struct {
	name string
	// dies says that the old namespace is gone from the beginning. Else it goes with the DEL.
	dies bool
	// listed says that the list of the GC has the old sandbox, and that the runtime still tells of it. Neither tells of the new
	// one.
	listed bool
}

var ways = []way{
	{"the old sandbox is gone, and listed", true, true}, {"the old sandbox is gone, and not listed", true, false},
	{"the old sandbox is there, and listed", false, true}, {"the old sandbox is there, and not listed", false, false},
}

func permute(left, done []string, found func([]string)) {
	if len(left) == 0 {
		found(append([]string{}, done...))
	}
	for i := range left {
		rest := append(append([]string{}, left[:i]...), left[i+1:]...)
		permute(rest, append(done, left[i]), found)
	}
}

// order is one order of the steps. Each order has an ordinal of the StatefulSet for itself.
func (s *rowState) order(t *testing.T, set made, order []string, way way, last int) {
	pod := s.member(t, set, last)
	before := s.box(t, fmt.Sprintf("old-%d", last), pod)
	s.add(t, before, "lan", last)
	pod = s.anew(t, pod, by(set))
	after := s.box(t, fmt.Sprintf("new-%d", last), pod)
	if way.dies {
		s.dies(t, before)
		s.runtime.knows(before, false)
	}
	if !way.listed {
		s.runtime.forgets(before)
	}
	attached := false
	for _, step := range order {
		switch step {
		case "ADD":
			// The runtime does not tell of the new sandbox before all is over.
			s.add(t, after, "lan", last)
			s.runtime.forgets(after)
			attached = true
		case "DEL":
			s.ends(t, before, "lan")
		case "GC":
			valid := []*box{}
			if way.listed {
				valid = append(valid, before)
			}
			s.gc(t, "lan", valid...)
		case "pass":
			for range 2 {
				s.passing(t)
			}
		}
		if attached {
			s.has(t, after, "lan", last)
		}
	}
	s.runtime.knows(after, true)
	is := fmt.Sprintf("held by new-%d for StatefulSet shop/orders, ordinal %d", last, last)
	s.is(t, "lan", last, is)
	stranger := s.podOn(t, "shop", fmt.Sprintf("stranger-%d", last), annotated("ipam.relink.dev/lan", s.at("lan", last).String()))
	s.refused(t, s.box(t, "stranger", stranger), "lan", 11, fmt.Sprintf("held by eth0 of new-%d on lan", last))
	s.keeps(t, "after all")
	s.is(t, "lan", last, is)
	s.ends(t, after, "lan")
	s.is(t, "lan", last, fmt.Sprintf("reserved for StatefulSet shop/orders, ordinal %d", last))
}

// passing makes a pass. What it finds depends on what came before.
func (s *rowState) passing(t *testing.T) {
	t.Helper()
	if r, err := s.run(t, 1); err != nil || !r.Complete() {
		t.Errorf("%v, %q", err, r.Problems)
	}
}

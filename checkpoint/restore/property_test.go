package restore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/netstate"
)

func drawMTU(t *rapid.T) int { return rapid.SampledFrom([]int{1500, 4000, 9000}).Draw(t, "MTU") }

// drawHost returns some of three NICs and two bonds, and a few VLANs. Each is in any state: renamed, free, enslaved,
// down.
func drawHost(t *rapid.T) devices {
	var there devices
	some := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) > 0 }
	place := func(d netstate.LiveDevice) { d.Up = some("up"); there = append(there, d) }
	for n := 1; n <= 3; n++ {
		if !some("NIC") {
			continue
		}
		name := rapid.SampledFrom([]string{fmt.Sprintf("eth%d", n), fmt.Sprintf("enp%ds0", n)}).Draw(t, "name")
		d := up(n, mtu(nic(name, n), drawMTU(t)), 0)
		d.MasterIndex = rapid.SampledFrom([]int{0, 0, 10, 11}).Draw(t, "enslaved to")
		place(d)
	}
	for n := range 2 {
		if some("bond") {
			place(up(10+n, mtu(bond(fmt.Sprintf("bond%d", n)), drawMTU(t)), 0))
		}
	}
	for _, below := range slices.Clone(there) {
		for id := 1; id <= 2; id++ {
			if !some("VLAN") {
				name := fmt.Sprintf("%s.%d", below.Name, rapid.IntRange(1, 3).Draw(t, "name's ID"))
				if _, taken := there.ByName(name); !taken {
					place(up(20+len(there), mtu(vlan(name, id), min(below.MTU, drawMTU(t))), below.Index))
				}
			}
		}
	}
	return there
}

// drawChain returns a base with up to two VLANs on it. No MTU is larger than the one below.
func drawChain(t *rapid.T) stack {
	base := nic("eth3", 3)
	if n := rapid.IntRange(0, 2).Draw(t, "base"); n < 2 {
		base = bond(fmt.Sprintf("bond%d", n), rapid.SliceOfNDistinct(rapid.IntRange(1, 3), 0, 3, rapid.ID[int]).Draw(t, "members")...)
	}
	c := stack{mtu(base, drawMTU(t))}
	for range rapid.IntRange(0, 2).Draw(t, "VLANs") {
		id := rapid.IntRange(1, 2).Draw(t, "ID")
		c = slices.Insert(c, 0, mtu(vlan(fmt.Sprintf("%s.%d", c[0].Name, id), id), min(c[0].MTU, drawMTU(t))))
	}
	return c
}

// This holds for every host and all records. Each step is possible when its turn comes. After a killed restore, the
// next one goes on with the next step. After a finished restore, the next one has nothing to do.
func TestRestoreOfParentsCanBeKilledAnywhereAndRunTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there := drawHost(t)
		chains := rapid.SliceOfN(rapid.Custom(drawChain), 1, 6).Draw(t, "chains")
		first := NewParentPlan(there, recordedMembers(chains...), ParentOptions{})
		begun := planChains(first, chains...)
		for n, step := range first.steps {
			again := planChains(NewParentPlan(there, recordedMembers(chains...), ParentOptions{}), chains...)
			if diff := cmp.Diff(begun.Steps[n:], again.Steps); diff != "" {
				t.Fatalf("planned after %d steps (-left +planned):\n%s", n, diff)
			}
			var err error
			if there, err = simulateHost(there, step); err != nil {
				t.Fatal(err)
			}
		}
		done := planChains(NewParentPlan(there, recordedMembers(chains...), ParentOptions{}), chains...)
		if len(done.Steps) > 0 {
			t.Fatalf("left to do after all was done: %q", done.Steps)
		}
		if diff := cmp.Diff([][]string{begun.On, begun.Broken, begun.Problems}, [][]string{done.On, done.Broken, done.Problems}); diff != "" {
			t.Fatalf("planned (-) and came out (+):\n%s", diff)
		}
	})
}

func TestRestoreOfParentsNeverLowersAnMTUOrFreesAMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawHost(t)
		chains := rapid.SliceOfN(rapid.Custom(drawChain), 1, 6).Draw(t, "chains")
		p := NewParentPlan(before, recordedMembers(chains...), ParentOptions{})
		planChains(p, chains...)
		after := before
		for _, step := range p.steps {
			var err error
			if after, err = simulateHost(after, step); err != nil {
				t.Fatal(err)
			}
		}
		for i, was := range before {
			is := after[i]
			if is.MTU < was.MTU || was.Up && !is.Up || was.MasterIndex != 0 && is.MasterIndex != was.MasterIndex {
				t.Fatalf("%s was %+v, is %+v", was.Name, was, is)
			}
		}
	})
}

// drawRoutes returns routes to two destinations. Some are in one place of the table.
func drawRoutes(t *rapid.T) []netstate.Route {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) netstate.Route {
		r := route(fmt.Sprintf("10.%d.0.0/16", rapid.IntRange(8, 9).Draw(t, "destination")),
			rapid.SampledFrom([]string{"", "10.3.0.1", "10.3.0.2"}).Draw(t, "gateway"))
		r.Priority = rapid.Uint32Range(0, 1).Draw(t, "metric")
		return r
	}), 0, 4, netstate.Route.String).Draw(t, "routes")
}

// drawPod returns an interface in any state. It can be down only with mayBeDown.
func drawPod(t *rapid.T, mayBeDown bool) netstate.Interface {
	i := pod()
	i.Link.Macvlan.Mode = rapid.SampledFrom([]string{"bridge", "private", "vepa"}).Draw(t, "mode")
	i.Link.Macvlan.BCQueueLen = rapid.Uint32Range(1, 3).Draw(t, "queue")
	i.Link.MTU = drawMTU(t)
	i.Link.MAC = rapid.SampledFrom([]string{"02:00:00:00:00:01", "02:00:00:00:00:02"}).Draw(t, "MAC")
	i.Link.Up = !mayBeDown || rapid.Bool().Draw(t, "up")
	i.Addresses = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) netstate.Address {
		a := address(fmt.Sprintf("10.3.0.%d/24", rapid.IntRange(1, 3).Draw(t, "address")))
		a.Flags = rapid.SampledFrom([]uint32{0, 0x200}).Draw(t, "flags")
		return a
	}), 0, 3, func(a netstate.Address) string { return a.String() }).Draw(t, "addresses")
	i.Routes = drawRoutes(t)
	return i
}

// This holds whatever exists. Each step is possible when its turn comes. The restore leaves everything that is not in
// its way. In the end nothing is left to do.
func TestRestoreOfAnInterfaceCanBeKilledAnywhereAndRunTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recorded := drawPod(t, false)
		var live *netstate.Interface
		if rapid.IntRange(0, 4).Draw(t, "gone") > 0 {
			there := drawPod(t, true)
			live = &there
		}
		for budget := 30; ; budget-- {
			steps, problem := planInterface(recorded, live, "eth1.3", recorded.Parents)
			if problem != nil || budget == 0 {
				t.Fatalf("comes to no end: %v, %q", problem, withReasons(steps))
			}
			if len(steps) == 0 {
				break
			}
			// A kill comes after one of the steps, perhaps after the last one.
			for _, step := range steps[:rapid.IntRange(1, len(steps)).Draw(t, "killed after")] {
				var err error
				if live, err = simulateSandbox(live, step, recorded); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, a := range recorded.Addresses {
			if !slices.Contains(live.Addresses, a) {
				t.Fatalf("address %s is not there", a)
			}
		}
		for _, r := range recorded.Routes {
			if !slices.ContainsFunc(live.Routes, r.Equal) {
				t.Fatalf("route %s is not there", r)
			}
		}
	})
}

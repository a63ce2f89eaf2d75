package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// imported returns a lease with one holder.
func (n *node) imported(a, sandbox, owner string) Lease {
	key := n.key(sandbox)
	return Lease{Address: addr(a), Owner: pod(owner), State: Held, Holders: []Holder{{
		ContainerID: key.ContainerID, IfName: key.IfName, Since: n.day, Origin: Imported, Policy: n.policy,
		Namespace: attachment.Namespace{BootID: n.boot},
	}}}
}

func TestTakeIn(t *testing.T) {
	for name, test := range map[string]struct {
		dryRun bool
		decide func(n *node, v ImportView) Import
		want   []string
	}{
		"leases": {false, func(n *node, _ ImportView) Import {
			return Import{Leases: []Lease{n.imported("10.3.0.5", "h1/eth0", ""), {Address: addr("10.3.0.6"), State: Reserved, Reason: "torn"}}}
		}, []string{"10.3.0.2 held c1/eth0+c2/eth0 web-0", "10.3.0.3 held c3/eth0", "10.3.0.5 held h1/eth0", "10.3.0.6 reserved"}},
		"a dry run": {true, func(n *node, _ ImportView) Import {
			return Import{Leases: []Lease{n.imported("10.3.0.5", "h1/eth0", "")}}
		}, []string{"10.3.0.2 held c1/eth0+c2/eth0 web-0", "10.3.0.3 held c3/eth0"}},
		"what is known now of a holder": {false, func(_ *node, v ImportView) Import {
			l := v.Leases[addr("10.3.0.3")]
			l.Owner, l.Holders = pod("db-0"), slices.Clone(l.Holders)
			l.Holders[0].Namespace.Inode = 7
			return Import{Leases: []Lease{l}}
		}, []string{"10.3.0.2 held c1/eth0+c2/eth0 web-0", "10.3.0.3 held c3/eth0 db-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", sticky)
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.add(t, "c2/eth0", "web-0", "10.3.0.2")
			n.policy = minute
			n.add(t, "c3/eth0", "", "10.3.0.3")
			err := n.store(t).Import(t.Context(), test.dryRun, func(v ImportView) Import { return test.decide(n, v) })
			must(t, err)
			n.expect(t, "after it", test.want...)
			// Everything that was taken in can be found.
			for _, l := range n.leases(t) {
				for _, h := range l.Holders {
					held, err := n.store(t).HeldBy(t.Context(), h.Key(n.network))
					if err != nil || len(held) != 1 || held[0].Address != l.Address {
						t.Errorf("%s holds %+v, %v", h.ContainerID, held, err)
					}
				}
			}
		})
	}
}

func (n *node) leases(t *testing.T) []Lease {
	t.Helper()
	all, err := n.store(t).List(t.Context())
	must(t, err)
	return all
}

// decide sees what the next ADD would find.
func TestViewBeforeLeasesAreTakenIn(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.policy = Policy{}
	n.add(t, "c2/eth0", "", "10.3.0.3")
	n.reserve(t, "10.3.0.9", "web-9", time.Minute)
	n.reboot("boot-2", time.Hour)
	must(t, n.store(t).Import(t.Context(), true, func(v ImportView) Import {
		if l, ok := v.Leases[addr("10.3.0.2")]; !ok || len(v.Leases) != 1 || line(l) != "10.3.0.2 reserved c1/eth0 web-0" {
			t.Errorf("%+v", v.Leases)
		}
		if !v.Time.Equal(n.day) || v.BootID != "boot-2" {
			t.Errorf("now %s, boot %s", v.Time, v.BootID)
		}
		return Import{}
	}))
}

func TestViewWithoutAStore(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	decide := func(v ImportView) Import {
		if len(v.Leases) > 0 || !v.Time.Equal(n.day) || v.BootID != "boot-1" {
			t.Errorf("%+v", v)
		}
		return Import{Leases: []Lease{n.imported("10.3.0.5", "h1/eth0", "")}}
	}
	must(t, n.store(t).Import(t.Context(), true, decide))
	if there, err := n.store(t).Exists(); there || err != nil {
		t.Fatalf("a dry run makes a store: %v", err)
	}
	must(t, n.store(t).Import(t.Context(), false, decide))
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.expect(t, "taken in", "10.3.0.2 held c1/eth0", "10.3.0.5 held h1/eth0")
}

// The leases that are taken in replace the earlier ones, in any order of container IDs.
func TestWhatIsTakenInIsFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, "10.3.0.20", sticky)
		for range rapid.IntRange(1, 3).Draw(rt, "imports") {
			var in Import
			for i := range 12 {
				a := addr("10.3.0.2")
				for range i {
					a = a.Next()
				}
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0:
					in.Leases = append(in.Leases, Lease{Address: a, State: Reserved, Reason: "torn"})
				case 1, 2:
					sandbox := fmt.Sprintf("%c%d/eth0", rapid.RuneFrom([]rune("azAZ09")).Draw(rt, "sandbox"), i%5)
					in.Leases = append(in.Leases, n.imported(a.String(), sandbox, rapid.SampledFrom([]string{"", "web-0", "web-1"}).Draw(rt, "pod")))
				}
			}
			must(rt, n.store(t).Import(t.Context(), false, func(ImportView) Import { return in }))
			must(rt, n.store(t).Verify(t.Context()))
			for _, want := range in.Leases {
				if diff := cmp.Diff(line(want), line(n.get(t, want.Address.String()))); diff != "" {
					rt.Fatalf("(-want +got):\n%s", diff)
				}
			}
		}
	})
}

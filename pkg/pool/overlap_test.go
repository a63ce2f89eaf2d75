package pool

import (
	"fmt"
	"strings"
	"testing"
)

// The younger of two pools that share addresses stops. The older one goes on, and knows whose blocks it must not take.
func TestTheYoungerOfTwoPoolsStops(t *testing.T) {
	made := func(name, when string, ranges ...string) Pool {
		return Pool{Metadata: Meta{Name: name, UID: "uid-" + name, CreationTimestamp: when}, Spec: Spec{Subnet: "10.3.0.0/24", Ranges: ranges}}
	}
	const first, second = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	a := made("a", first, "10.3.0.10-10.3.0.19")
	b := made("b", second, "10.3.0.16-10.3.0.17", "10.3.0.19-10.3.0.29")
	swapped := made("wrong", first, "10.3.0.200-10.3.0.210", "10.3.0.219-10.3.0.211")
	subnet := func(text string) Pool {
		p := made("0", first)
		p.Spec.Subnet = text
		return p
	}
	in := func(segment string, p Pool) Pool {
		p.Spec.Segment = segment
		return p
	}
	const stopsA = "10.3.0.10-10.3.0.19 of it is in AddressPool wrong, which counts as all of 10.3.0.0/24 until its spec is correct: correct that one, or make a pool of other addresses"
	for name, test := range map[string]struct {
		p       Pool
		all     []Pool
		stopped string
		sharing string
	}{
		"alone":                          {a, []Pool{a}, "", ""},
		"beside another":                 {a, []Pool{a, made("b", first, "10.3.0.20-10.3.0.29")}, "", ""},
		"older":                          {a, []Pool{b, a}, "", "b"},
		"older than several":             {a, []Pool{b, made("c", second, "10.3.0.0/24"), made("d", second, "10.3.0.40"), a}, "", "b c"},
		"younger":                        {b, []Pool{a}, "10.3.0.16-10.3.0.17 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "a"},
		"younger, by the second range":   {made("b", second, "10.3.0.30", "10.3.0.19-10.3.0.29"), []Pool{a}, "10.3.0.19-10.3.0.29 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "a"},
		"of one second, the name":        {made("b", first, "10.3.0.10"), []Pool{a}, "10.3.0.10 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "a"},
		"younger than a wrong one":       {made("x", second, "10.3.0.10-10.3.0.19"), []Pool{swapped}, stopsA, "wrong"},
		"older than a wrong one":         {a, []Pool{swapped}, "", "wrong"},
		"wrong itself, and younger":      {swapped, []Pool{a}, "10.3.0.0-10.3.0.255 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "a"},
		"beside a wrong one":             {subnet("10.4.0.0/24"), []Pool{swapped}, "", ""},
		"the subnet of another is wrong": {a, []Pool{subnet("x")}, "", ""},
		"its own subnet is wrong":        {subnet("10.3.0.1/24"), []Pool{a}, "", ""},
		"of another segment":             {in("vlan7", b), []Pool{a, in("vlan8", a)}, "", ""},
		"of the same segment":            {in("vlan7", b), []Pool{in("vlan7", a)}, "10.3.0.16-10.3.0.17 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "a"},
		"another one is of all networks": {a, []Pool{subnet("0.0.0.0/0")}, "", ""},
	} {
		var sharing []string
		for _, o := range test.p.Overlapping(test.all) {
			sharing = append(sharing, o.Metadata.Name)
		}
		if got := test.p.OverlapReason(test.all); got != test.stopped || strings.Join(sharing, " ") != test.sharing {
			t.Errorf("%s: Stopped() = %q, Sharing() = %v, want %q, %q", name, got, sharing, test.stopped, test.sharing)
		}
	}
}

// Who overlaps whom among 2,000 pools is known at once, also if one of them has all addresses.
func BenchmarkOverlap(b *testing.B) {
	for name, whole := range map[string]bool{"apart": false, "one has all": true} {
		var pools []Pool
		for i := range 2000 {
			subnet := fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)
			if whole && i == 0 {
				subnet = "10.0.0.0/8"
			}
			pools = append(pools, Pool{Metadata: Meta{Name: fmt.Sprint("p", i), UID: fmt.Sprint(i)}, Spec: Spec{Subnet: subnet, Ranges: []string{subnet}}})
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e, stopped := NewExtents(pools), 0
				for _, p := range pools {
					if p.OverlapReason(e.Overlapping(p)) != "" {
						stopped++
					}
				}
				if (stopped > 0) != whole {
					b.Fatal(stopped)
				}
			}
		})
	}
}

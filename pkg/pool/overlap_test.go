package pool

import "testing"

func TestTheYoungerOfTwoPoolsStops(t *testing.T) {
	made := func(name, when string, ranges ...string) Pool {
		return Pool{Metadata: Meta{Name: name, UID: "uid-" + name, CreationTimestamp: when}, Spec: Spec{Subnet: "10.3.0.0/24", Ranges: ranges}}
	}
	const first, second = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	a := made("a", first, "10.3.0.10-10.3.0.19")
	broken := made("broken", first)
	broken.Spec.Subnet = "x"
	for name, test := range map[string]struct {
		p       Pool
		all     []Pool
		stopped string
		shared  string
	}{
		"alone":                            {a, []Pool{a}, "", ""},
		"beside another":                   {a, []Pool{a, made("b", first, "10.3.0.20-10.3.0.29")}, "", ""},
		"older":                            {a, []Pool{made("b", second, "10.3.0.19-10.3.0.29"), a}, "", "10.3.0.19-10.3.0.29"},
		"younger":                          {made("b", second, "10.3.0.30", "10.3.0.19-10.3.0.29"), []Pool{a}, "10.3.0.19-10.3.0.29 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "10.3.0.10-10.3.0.19"},
		"of one second, the name":          {made("b", first, "10.3.0.10"), []Pool{a}, "10.3.0.10 of it is in AddressPool a (10.3.0.10-10.3.0.19), too: make a pool of other addresses", "10.3.0.10-10.3.0.19"},
		"beside a pool that gives nothing": {a, []Pool{broken}, "", ""},
		"that gives nothing itself":        {broken, []Pool{a}, "", ""},
	} {
		shared := ""
		for _, s := range test.p.Shared(test.all) {
			shared += s.String()
		}
		if got := test.p.Stopped(test.all); got != test.stopped || shared != test.shared {
			t.Errorf("%s: Stopped() = %q, Shared() = %s, want %q, %s", name, got, shared, test.stopped, test.shared)
		}
	}
}

package lease

import (
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var errRollBack = errors.New("roll back")

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func span(first, last string) Span { return Span{First: addr(first), Last: addr(last)} }

func TestSkipPassesOverTheGatewayAndWhatIsExcluded(t *testing.T) {
	const none = "invalid IP"
	for name, test := range map[string]struct {
		in       Span
		gateway  string
		excluded []Span
		from     string
		want     string
	}{
		"nothing in the way":               {span("10.3.0.1", "10.3.0.9"), "10.3.0.254", nil, "10.3.0.1", "10.3.0.1"},
		"the gateway":                      {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", nil, "10.3.0.1", "10.3.0.2"},
		"a span after the gateway":         {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", []Span{span("10.3.0.2", "10.3.0.4")}, "10.3.0.1", "10.3.0.5"},
		"spans out of order":               {span("10.3.0.1", "10.3.0.9"), "10.3.0.6", []Span{span("10.3.0.4", "10.3.0.5"), span("10.3.0.1", "10.3.0.3")}, "10.3.0.1", "10.3.0.7"},
		"spans over each other":            {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", []Span{span("10.3.0.1", "10.3.0.5"), span("10.3.0.3", "10.3.0.7")}, "10.3.0.2", "10.3.0.8"},
		"from within a span":               {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", []Span{span("10.3.0.2", "10.3.0.5")}, "10.3.0.4", "10.3.0.6"},
		"a span to the end":                {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", []Span{span("10.3.0.8", "10.3.0.9")}, "10.3.0.8", none},
		"a span beyond the end":            {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", []Span{span("10.3.0.8", "10.3.1.9")}, "10.3.0.8", none},
		"the gateway at the end":           {span("10.3.0.1", "10.3.0.9"), "10.3.0.9", nil, "10.3.0.9", none},
		"the gateway at the last of all":   {span("255.255.255.250", "255.255.255.255"), "255.255.255.255", nil, "255.255.255.255", none},
		"a span to the last of all":        {span("255.255.255.250", "255.255.255.255"), "255.255.255.250", []Span{span("255.255.255.251", "255.255.255.255")}, "255.255.255.250", none},
		"a span to the last of all IPv6":   {span("ffff::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "ffff::", []Span{span("ffff::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}, "ffff::", none},
		"a span from the first of all":     {span("0.0.0.1", "0.0.0.9"), "0.0.0.1", []Span{span("0.0.0.0", "0.0.0.3")}, "0.0.0.1", "0.0.0.4"},
		"a span of the other family":       {span("::1", "::9"), "::1", []Span{span("0.0.0.0", "255.255.255.255")}, "::2", "::2"},
		"most of a /64":                    {span("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"), "2001:db8::1", []Span{span("2001:db8::", "2001:db8::ffff:ffff:ffff:0")}, "2001:db8::1", "2001:db8::ffff:ffff:ffff:1"},
		"from outside":                     {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", nil, "10.3.0.10", none},
		"from an address of the other one": {span("10.3.0.1", "10.3.0.9"), "10.3.0.1", nil, "::1", none},
	} {
		r := Range{Span: test.in, Gateway: addr(test.gateway), Excluded: test.excluded}
		if got := r.firstGiven(addr(test.from)).String(); got != test.want {
			t.Errorf("%s: skip(%s) = %s, want %s", name, test.from, got, test.want)
		}
	}
}

func TestTurnsBeginAfterWhatWasGivenLast(t *testing.T) {
	a, b, c := span("10.3.0.1", "10.3.0.9"), span("10.4.0.1", "10.4.0.1"), span("10.5.0.1", "10.5.0.5")
	for name, test := range map[string]struct {
		set  []Span
		last netip.Addr
		want string
	}{
		"nothing was":                       {[]Span{a, b}, netip.Addr{}, "10.3.0.1-10.3.0.9 10.4.0.1"},
		"of another configuration":          {[]Span{a, b}, addr("10.9.0.1"), "10.3.0.1-10.3.0.9 10.4.0.1"},
		"the first":                         {[]Span{a}, addr("10.3.0.1"), "10.3.0.2-10.3.0.9 10.3.0.1"},
		"the last":                          {[]Span{a}, addr("10.3.0.9"), "10.3.0.1-10.3.0.9"},
		"in the middle of the first range":  {[]Span{a, b, c}, addr("10.3.0.4"), "10.3.0.5-10.3.0.9 10.4.0.1 10.5.0.1-10.5.0.5 10.3.0.1-10.3.0.4"},
		"all of a range":                    {[]Span{a, b, c}, addr("10.4.0.1"), "10.5.0.1-10.5.0.5 10.3.0.1-10.3.0.9 10.4.0.1"},
		"in the middle of the last range":   {[]Span{a, b, c}, addr("10.5.0.4"), "10.5.0.5 10.3.0.1-10.3.0.9 10.4.0.1 10.5.0.1-10.5.0.4"},
		"the only one":                      {[]Span{b}, addr("10.4.0.1"), "10.4.0.1"},
		"the last of all addresses":         {[]Span{span("255.255.255.254", "255.255.255.255")}, addr("255.255.255.255"), "255.255.255.254-255.255.255.255"},
		"the last but one of all addresses": {[]Span{span("255.255.255.254", "255.255.255.255")}, addr("255.255.255.254"), "255.255.255.255 255.255.255.254"},
	} {
		var set RangeSet
		for _, s := range test.set {
			set = append(set, Range{Span: s})
		}
		var got []string
		for _, turn := range set.turns(test.last) {
			got = append(got, turn.part.String())
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// windows are the places where sets are drawn: at both ends of each family's addresses, and across a byte.
var windows = []netip.Addr{addr("0.0.0.0"), addr("10.3.0.240"), addr("255.255.255.224"), addr("::"), addr("2001:db8::fff0"), addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffe0")}

const windowSize = 32

// window returns the addresses of a window in order.
func window(t *rapid.T) []netip.Addr {
	all := []netip.Addr{rapid.SampledFrom(windows).Draw(t, "window")}
	for len(all) < windowSize {
		all = append(all, all[len(all)-1].Next())
	}
	return all
}

// drawSet draws disjoint ranges in any order. Each has a gateway and exclusions, which may be anywhere.
func drawSet(t *rapid.T, all []netip.Addr) RangeSet {
	var set RangeSet
	for at := 0; at < len(all) && len(set) < 4; {
		first := rapid.IntRange(at, len(all)-1).Draw(t, "first")
		last := rapid.IntRange(first, len(all)-1).Draw(t, "last")
		r := Range{Span: Span{First: all[first], Last: all[last]}, Gateway: rapid.SampledFrom(all).Draw(t, "gateway")}
		for range rapid.IntRange(0, 3).Draw(t, "excluded") {
			from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
			to := rapid.IntRange(from, len(all)-1).Draw(t, "to")
			r.Excluded = append(r.Excluded, Span{First: all[from], Last: all[to]})
		}
		set, at = append(set, r), last+1
		if !rapid.Bool().Draw(t, "another range") {
			break
		}
	}
	return rapid.Permutation(set).Draw(t, "order")
}

// inOrder is the simple form of turns, skip and free. It returns every address of the set that may be given, range by
// range, beginning after the last one given.
func inOrder(set RangeSet, all []netip.Addr, last netip.Addr) []netip.Addr {
	var order []netip.Addr
	begin := 0
	for _, r := range set {
		for _, a := range all {
			if r.Contains(a) {
				order = append(order, a)
			}
			if r.Contains(a) && a == last {
				begin = len(order)
			}
		}
	}
	order = append(order[begin:len(order):len(order)], order[:begin]...)
	var given []netip.Addr
	for _, a := range order {
		r, _ := set.Find(a)
		if ok, _ := r.Gives(a); ok {
			given = append(given, a)
		}
	}
	return given
}

func TestSkipAndTurnsGoThroughAllThatMayBeGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := window(t)
		set, last := drawSet(t, all), rapid.SampledFrom(all).Draw(t, "last")
		var got []netip.Addr
		for _, turn := range set.turns(last) {
			for a := turn.firstGiven(turn.part.First); a.IsValid() && turn.part.Contains(a); a = turn.firstGiven(a.Next()) {
				got = append(got, a)
			}
		}
		if want := inOrder(set, all, last); !cmp.Equal(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
			t.Fatalf("set %v after %s: %v, want %v", set, last, got, want)
		}
	})
}

// The size of a set, and whether it is empty, agree with a look at each address.
func TestSizeCountsAllThatMayBeGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := window(t)
		set := drawSet(t, all)
		// An exclusion of the other family excludes nothing.
		set[0].Excluded = append(set[0].Excluded, span("2001:db8:ffff::", "2001:db8:ffff::1"), span("192.0.2.1", "192.0.2.9"))
		want := len(inOrder(set, all, netip.Addr{}))
		if got := set.size(); got.Cmp(big.NewInt(int64(want))) != 0 {
			t.Fatalf("set %v has %s addresses, want %d", set, got, want)
		}
		if got := set.GivesAny(); got != (want > 0) {
			t.Fatalf("set %v gives any: %t, want %d", set, got, want)
		}
		other := drawSet(t, all)
		overlaps := slices.ContainsFunc(all, func(a netip.Addr) bool {
			_, in := set.Find(a)
			_, inOther := other.Find(a)
			return in && inOther
		})
		if got := set.Overlaps(other); got != overlaps || other.Overlaps(set) != overlaps {
			t.Fatalf("%v overlaps %v: %t, want %t", set, other, got, overlaps)
		}
	})
}

func TestSizeOfLargeSets(t *testing.T) {
	for name, test := range map[string]struct {
		set  RangeSet
		want string
	}{
		"no range":       {nil, "0"},
		"all of IPv4":    {RangeSet{{Span: span("0.0.0.0", "255.255.255.255")}}, "4294967296"},
		"all of IPv6":    {RangeSet{{Span: span("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}}, "340282366920938463463374607431768211456"},
		"most of a /64":  {RangeSet{{Span: span("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"), Gateway: addr("2001:db8::1")}}, "18446744073709551614"},
		"half of a /64":  {RangeSet{{Span: span("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff"), Excluded: []Span{span("2001:db8::", "2001:db8::7fff:ffff:ffff:ffff")}}}, "9223372036854775808"},
		"two ranges":     {RangeSet{{Span: span("10.3.0.0", "10.3.255.255")}, {Span: span("10.4.0.0", "10.4.0.255"), Excluded: []Span{span("10.4.0.0", "10.4.0.9")}}}, "65782"},
		"all excluded":   {RangeSet{{Span: span("10.3.0.0", "10.3.0.9"), Excluded: []Span{span("10.0.0.0", "10.255.255.255")}}}, "0"},
		"excluded twice": {RangeSet{{Span: span("10.3.0.0", "10.3.0.9"), Gateway: addr("10.3.0.2"), Excluded: []Span{span("10.3.0.1", "10.3.0.3"), span("10.3.0.2", "10.3.0.4")}}}, "6"},
	} {
		if got := test.set.size().String(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestGivesSaysWhyNot(t *testing.T) {
	set := RangeSet{
		{Span: span("10.3.0.2", "10.3.0.9"), Gateway: addr("10.3.0.3"), Excluded: []Span{span("10.3.0.5", "10.3.0.5"), span("10.3.0.7", "10.3.0.8")}},
		{Span: span("10.4.0.2", "10.4.0.9"), Gateway: addr("10.4.0.1")},
	}
	for a, want := range map[string]string{
		"10.3.0.2": "", "10.4.0.3": "", "10.3.0.3": "it is the gateway", "10.3.0.5": "it is in exclude 10.3.0.5",
		"10.3.0.8": "it is in exclude 10.3.0.7-10.3.0.8", "10.3.0.10": "it is in none of the ranges", "10.4.0.1": "it is in none of the ranges",
		"::ffff:10.3.0.2": "it is in none of the ranges", "2001:db8::1": "it is in none of the ranges",
	} {
		if ok, why := set.Gives(addr(a)); ok != (want == "") || why != want {
			t.Errorf("%s: %t, %q, want %q", a, ok, why, want)
		}
	}
}

// Addresses are held and given up in any order. The next address given is always the first in order that is not held. A
// look at each address gives the same.
func TestNextIsTheFirstThatIsFree(t *testing.T) {
	store := newNode(t, "10.3.0.254", minute).store(t)
	rapid.Check(t, func(t *rapid.T) {
		all := window(t)
		set := drawSet(t, all)

		err := store.update(t.Context(), func(l *leaseTx) error {
			held := map[netip.Addr]bool{}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				a := rapid.SampledFrom(all).Draw(t, "address")
				step(t, l, a, held)
				expectFree(t, l, set, all, a, held)
				expectRuns(t, l, all, held)
			}
			return errRollBack
		})
		if !errors.Is(err, errRollBack) {
			t.Fatal(err)
		}
	})
}

// step makes a free address held, or a held one free.
func step(t *rapid.T, l *leaseTx, a netip.Addr, held map[netip.Addr]bool) {
	var err error
	if held[a] {
		err = l.remove(Lease{Address: a})
	} else {
		err = l.put(Lease{Address: a, State: Quarantined})
	}
	if err != nil {
		t.Fatal(err)
	}
	held[a] = !held[a]
}

func expectFree(t *rapid.T, l *leaseTx, set RangeSet, all []netip.Addr, last netip.Addr, held map[netip.Addr]bool) {
	var want, got netip.Addr
	for _, a := range inOrder(set, all, last) {
		if !held[a] {
			want = a
			break
		}
	}
	for _, turn := range set.turns(last) {
		if got, _ = l.firstFree(turn); got.IsValid() {
			break
		}
	}
	if got != want {
		t.Fatalf("set %v after %s, held %v: %s, want %s", set, last, held, got, want)
	}
}

// expectRuns compares the runs with what is held.
func expectRuns(t *rapid.T, l *leaseTx, all []netip.Addr, held map[netip.Addr]bool) {
	var want, got []string
	for i := 0; i < len(all); i++ {
		if !held[all[i]] {
			continue
		}
		first := all[i]
		for i+1 < len(all) && held[all[i+1]] {
			i++
		}
		want = append(want, Span{First: first, Last: all[i]}.String())
	}
	_ = l.runs.ForEach(func(first, last []byte) error {
		got = append(got, Span{First: addressOf(first), Last: addressOf(last)}.String())
		return nil
	})
	if !cmp.Equal(want, got) {
		t.Fatalf("runs %v, want %v", got, want)
	}
}

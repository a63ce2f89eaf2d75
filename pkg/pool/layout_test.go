package pool

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func span(first, last string) Span { return Span{addr(first), addr(last)} }

// specOf is a pool with that spec.
func specOf(s Spec) Pool { return Pool{Metadata: Meta{Name: "p", UID: "u"}, Spec: s} }

// What counts is what the pool gives now: one that it excludes by now does not, and one that it gives again is free.
func TestExhausted(t *testing.T) {
	for name, test := range map[string]struct {
		blocks    []string
		exclude   []string
		exhausted bool
	}{
		"no block":                              {nil, nil, false},
		"a block is missing":                    {[]string{"AAAA"}, nil, false},
		"nodes have all":                        {[]string{"AAAA", "AABB"}, nil, true},
		"an owner's":                            {[]string{"AAAA", "A=AA"}, nil, true},
		"nobody's":                              {[]string{"AAAA", "A.AA"}, nil, false},
		"the rest is excluded":                  {[]string{"AAAA", "A-AA"}, []string{"10.3.0.6"}, true},
		"a pod has one that is excluded by now": {[]string{"AAAA", "AAAA"}, []string{"10.3.0.6"}, true},
		"only one that is excluded by now":      {[]string{"AAAA", "A.AA"}, []string{"10.3.0.6"}, true},
		"nobody's, and a pod has an excluded":   {[]string{"AAAA", "A.AA"}, []string{"10.3.0.1"}, false},
		"no exclusion any more":                 {[]string{"AAAA", "A-AA"}, nil, false},
		"an excluded block that nobody has":     {[]string{"AAAA"}, []string{"10.3.0.5-10.3.0.8"}, true},
	} {
		l, err := specOf(Spec{Subnet: "10.3.0.0/24", Ranges: []string{"10.3.0.1-10.3.0.8"}, BlockSize: 4, Exclude: test.exclude}).Layout()
		if err != nil {
			t.Fatal(err)
		}
		var blocks []Block
		for i, addresses := range test.blocks {
			b, _ := l.Block(int64(i))
			blocks = append(blocks, Block{Spec: BlockSpec{Index: int64(i), First: b.First, Last: b.Last}, Status: BlockStatus{Addresses: addresses}})
		}
		if got := l.Exhausted(blocks); got != test.exhausted {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestLayoutNamesTheKeyTheValueAndWhatToDo(t *testing.T) {
	const subnet = "10.3.0.0/24"
	for name, test := range map[string]struct {
		spec Spec
		want string
	}{
		"no subnet":                   {Spec{}, `invalid spec.subnet "": must be a network such as 10.3.0.0/24`},
		"no prefix":                   {Spec{Subnet: "10.3.0.0"}, `invalid spec.subnet "10.3.0.0": must be a network such as 10.3.0.0/24`},
		"bits of a host":              {Spec{Subnet: "10.3.0.1/24"}, `invalid spec.subnet "10.3.0.1/24": must be a network such as 10.3.0.0/24`},
		"IPv4 in IPv6":                {Spec{Subnet: "::ffff:10.3.0.0/120"}, `invalid spec.subnet "::ffff:10.3.0.0/120": must be a network such as 10.3.0.0/24`},
		"a negative block size":       {Spec{Subnet: subnet, BlockSize: -1}, `invalid spec.blockSize "-1": must be between 1 and 64`},
		"a large block size":          {Spec{Subnet: subnet, BlockSize: 65}, `invalid spec.blockSize "65": must be between 1 and 64`},
		"a gateway that is no one":    {Spec{Subnet: subnet, Gateway: "x"}, `invalid spec.gateway "x": must be an address of the subnet 10.3.0.0/24`},
		"a gateway elsewhere":         {Spec{Subnet: subnet, Gateway: "10.4.0.1"}, `invalid spec.gateway "10.4.0.1": must be an address of the subnet 10.3.0.0/24`},
		"a gateway of IPv6":           {Spec{Subnet: subnet, Gateway: "fe80::1"}, `invalid spec.gateway "fe80::1": must be an address of the subnet 10.3.0.0/24`},
		"a gateway with a zone":       {Spec{Subnet: "2001:db8::/64", Gateway: "fe80::1%eth0"}, `invalid spec.gateway "fe80::1%eth0": must be an address of the subnet 2001:db8::/64`},
		"a gateway of IPv4 in IPv6":   {Spec{Subnet: "2001:db8::/64", Gateway: "::ffff:169.254.0.1"}, `invalid spec.gateway "::ffff:169.254.0.1": must be an address of the subnet 2001:db8::/64`},
		"a route to nowhere":          {Spec{Subnet: subnet, Routes: []Route{{Dst: "10.0.0.0/8"}, {Dst: "x"}}}, `invalid spec.routes[1].dst "x": must be a network such as 10.0.0.0/8`},
		"a route over nothing":        {Spec{Subnet: subnet, Routes: []Route{{Dst: "10.0.0.0/8", GW: "y"}}}, `invalid spec.routes[0].gw "y": must be an address`},
		"a range that is none":        {Spec{Subnet: subnet, Ranges: []string{"x"}}, `invalid spec.ranges[0] "x": must be addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"a range the wrong way":       {Spec{Subnet: subnet, Ranges: []string{"10.3.0.9-10.3.0.8"}}, `invalid spec.ranges[0] "10.3.0.9-10.3.0.8": must be addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"a range beyond the subnet":   {Spec{Subnet: subnet, Ranges: []string{"10.3.0.1-10.3.0.9", "10.3.0.250-10.3.1.9"}}, `invalid spec.ranges[1] "10.3.0.250-10.3.1.9": must be addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"ranges that overlap":         {Spec{Subnet: subnet, Ranges: []string{"10.3.0.1-10.3.0.9", "10.3.0.9-10.3.0.20"}}, `invalid spec.ranges[1] "10.3.0.9-10.3.0.20": must not overlap 10.3.0.1-10.3.0.9`},
		"an exclusion of nothing":     {Spec{Subnet: subnet, Exclude: []string{"10.3.0.1", "x"}}, `invalid spec.exclude[1] "x": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"an exclusion of two kinds":   {Spec{Subnet: subnet, Exclude: []string{"10.3.0.1-::1"}}, `invalid spec.exclude[0] "10.3.0.1-::1": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"an exclusion of 4 in 6":      {Spec{Subnet: subnet, Exclude: []string{"::ffff:10.3.0.0/120"}}, `invalid spec.exclude[0] "::ffff:10.3.0.0/120": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"an exclusion outside":        {Spec{Subnet: subnet, Exclude: []string{"10.30.0.0/28"}}, `invalid spec.exclude[0] "10.30.0.0/28": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"an exclusion of IPv6":        {Spec{Subnet: subnet, Exclude: []string{"10.3.0.4", "fd00::/64"}}, `invalid spec.exclude[1] "fd00::/64": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"an exclusion backwards":      {Spec{Subnet: subnet, Exclude: []string{"10.3.0.9-10.3.0.3"}}, `invalid spec.exclude[0] "10.3.0.9-10.3.0.3": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
		"another family's gateway":    {Spec{Subnet: subnet, Routes: []Route{{Dst: "0.0.0.0/0", GW: "fd00::1"}}}, `invalid spec.routes[0].gw "fd00::1": must be of the family of dst 0.0.0.0/0`},
		"an exclusion that is no net": {Spec{Subnet: subnet, Exclude: []string{"10.3.0.1/24"}}, `invalid spec.exclude[0] "10.3.0.1/24": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`},
	} {
		l, err := specOf(test.spec).Layout()
		if want := "AddressPool p: " + test.want; err == nil || err.Error() != want {
			t.Errorf("%s: Layout() = %+v, %v, want the error %s", name, l, err, want)
		}
	}
}

// No host can use the network's own address or the broadcast address, so no pod gets them, whatever the ranges are.
func TestLayoutExcludesWhatNoHostCanUse(t *testing.T) {
	for name, test := range map[string]struct {
		spec      Spec
		want      string
		addresses string
	}{
		"a network":            {Spec{Subnet: "10.3.0.0/29", Ranges: []string{"10.3.0.0/29"}}, "[10.3.0.0 10.3.0.7]", "6"},
		"single addresses":     {Spec{Subnet: "10.3.0.0/29", Ranges: []string{"10.3.0.7", "10.3.0.2-10.3.0.3"}}, "[10.3.0.7]", "2"},
		"a part of the subnet": {Spec{Subnet: "10.3.0.0/22", Ranges: []string{"10.3.1.0/24"}}, "[]", "256"},
		"two addresses":        {Spec{Subnet: "10.3.0.0/31", Ranges: []string{"10.3.0.0/31"}}, "[]", "2"},
		"IPv6":                 {Spec{Subnet: "fd00::/124", Ranges: []string{"fd00::/124"}}, "[fd00::]", "15"},
		"with an exclusion":    {Spec{Subnet: "10.3.0.0/29", Ranges: []string{"10.3.0.0/29"}, Exclude: []string{"10.3.0.0-10.3.0.1"}}, "[10.3.0.0-10.3.0.1 10.3.0.7]", "5"},
	} {
		l, err := specOf(test.spec).Layout()
		if got := fmt.Sprint(l.Exclude); err != nil || got != test.want || l.Addresses().String() != test.addresses {
			t.Errorf("%s: Layout() excludes %s of %s, %v, want %s of %s", name, got, l.Addresses(), err, test.want, test.addresses)
		}
	}
}

// No pod can have an address of a reserved network, so no pool has any.
func TestLayoutRefusesReservedNetworks(t *testing.T) {
	for subnet, reserved := range map[string]string{
		"0.0.0.0/0": "0.0.0.0/8", "128.0.0.0/1": "169.254.0.0/16", "0.1.0.0/16": "0.0.0.0/8", "127.0.0.0/8": "127.0.0.0/8", "127.5.0.0/16": "127.0.0.0/8",
		"169.254.0.0/16": "169.254.0.0/16", "169.254.9.0/24": "169.254.0.0/16", "224.0.0.0/4": "224.0.0.0/4", "239.1.0.0/16": "224.0.0.0/4",
		"240.0.0.0/4": "255.255.255.255/32", "255.255.255.255/32": "255.255.255.255/32", "::/0": "::/8", "::1/128": "::/8", "::/128": "::/8", "8000::/1": "fe80::/10",
		"fe80::/10": "fe80::/10", "fe80::/64": "fe80::/10", "ff00::/8": "ff00::/8", "ff02::/16": "ff00::/8",
	} {
		_, err := specOf(Spec{Subnet: subnet}).Layout()
		want := fmt.Sprintf("AddressPool p: invalid spec.subnet %q: must have no address of the reserved network %s: pods need others, such as 10.3.0.0/24", subnet, reserved)
		if err == nil || err.Error() != want {
			t.Errorf("%s: Layout() = %v, want %s", subnet, err, want)
		}
	}
	for _, subnet := range []string{"1.0.0.0/8", "126.0.0.0/8", "128.0.0.0/16", "169.253.0.0/16", "192.0.2.0/24", "223.0.0.0/8", "240.1.0.0/16", "100::/8", "2001:db8::/32", "fc00::/7", "fec0::/10"} {
		if _, err := specOf(Spec{Subnet: subnet}).Layout(); err != nil {
			t.Errorf("%s: %v", subnet, err)
		}
	}
}

func TestLayoutBoundsTheName(t *testing.T) {
	for _, n := range []int{MaxName, MaxName + 1} {
		p := specOf(Spec{Subnet: "10.3.0.0/24"})
		p.Metadata.Name = strings.Repeat("p", n)
		_, err := p.Layout()
		if refused := err != nil && strings.Contains(err.Error(), "invalid name: it must have at most 200 characters"); refused != (n > MaxName) {
			t.Errorf("a name of %d characters: Layout() = %v", n, err)
		}
	}
}

func TestLayoutOfAWholeSubnet(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.3.0.0/24":    "10.3.0.1-10.3.0.254",
		"10.3.0.0/30":    "10.3.0.1-10.3.0.2",
		"10.3.0.0/31":    "10.3.0.0-10.3.0.1",
		"10.3.0.7/32":    "10.3.0.7",
		"10.0.0.0/8":     "10.0.0.1-10.255.255.254",
		"2001:db8::/64":  "2001:db8::1-2001:db8::ffff:ffff:ffff:ffff",
		"2001:db8::/127": "2001:db8::-2001:db8::1",
		"fd00::1/128":    "fd00::1",
	} {
		l, err := specOf(Spec{Subnet: subnet}).Layout()
		if err != nil || len(l.Ranges) != 1 || l.Ranges[0].String() != want || l.BlockSize != DefaultBlockSize {
			t.Errorf("%s: Layout() = %v in blocks of %d, %v, want %s in blocks of %d", subnet, l.Ranges, l.BlockSize, err, want, DefaultBlockSize)
		}
	}
}

func TestLayoutTakesAGatewayOnTheLink(t *testing.T) {
	for gateway, subnet := range map[string]string{"fe80::1": "2001:db8::/64", "169.254.0.1": "10.3.0.0/24", "10.3.0.1": "10.3.0.0/24"} {
		l, err := specOf(Spec{Subnet: subnet, Gateway: gateway}).Layout()
		if err != nil || l.Gateway != addr(gateway) {
			t.Errorf("%s for %s: Layout() has the gateway %s, %v", gateway, subnet, l.Gateway, err)
		}
	}
}

func TestBlocksOfRangesWithOddSizes(t *testing.T) {
	l, err := specOf(Spec{Subnet: "10.3.0.0/24", BlockSize: 4, Ranges: []string{"10.3.0.10-10.3.0.18", "10.3.0.1", "10.3.0.30-10.3.0.33"}}).Layout()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.3.0.10-10.3.0.13", "10.3.0.14-10.3.0.17", "10.3.0.18", "10.3.0.1", "10.3.0.30-10.3.0.33"}
	if n := l.Blocks(); n != int64(len(want)) {
		t.Errorf("Blocks() = %d, want %d", n, len(want))
	}
	for i, w := range want {
		if s, ok := l.Block(int64(i)); !ok || s.String() != w {
			t.Errorf("Block(%d) = %s, %t, want %s", i, s, ok, w)
		}
	}
	for _, i := range []int64{-1, int64(len(want)), math.MaxInt64, math.MinInt64} {
		if s, ok := l.Block(i); ok {
			t.Errorf("Block(%d) = %s, want none", i, s)
		}
	}
	for _, a := range []string{"10.3.0.9", "10.3.0.19", "10.3.0.0", "10.3.0.34", "::", "::ffff:10.3.0.10"} {
		if i, ok := l.Index(addr(a)); ok {
			t.Errorf("Index(%s) = %d, want none", a, i)
		}
	}
}

func TestBlocksAreBounded(t *testing.T) {
	l := Layout{BlockSize: 2, Ranges: []Span{span("2001:db8::10", "2001:db8::13"), span("2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff"), span("2001:db8:0:2::", "2001:db8:0:2::1")}}
	if n := l.Blocks(); n != MaxBlocks {
		t.Errorf("Blocks() = %d, want %d", n, MaxBlocks)
	}
	last := span("2001:db8:0:1::1f:fffa", "2001:db8:0:1::1f:fffb")
	if s, ok := l.Block(MaxBlocks - 1); !ok || s != last {
		t.Errorf("the last block is %s, %t, want %s", s, ok, last)
	}
	for a, want := range map[netip.Addr]int64{
		last.Last: MaxBlocks - 1, last.Last.Next(): -1, addr("2001:db8:0:1:7fff:ffff:ffff:ffff"): -1,
		addr("2001:db8:0:1:ffff:ffff:ffff:ffff"): -1, addr("2001:db8:0:2::"): -1, addr("2001:db8::13"): 1,
	} {
		if i, ok := l.Index(a); ok != (want >= 0) || ok && i != want {
			t.Errorf("Index(%s) = %d, %t, want %d", a, i, ok, want)
		}
	}
	if _, ok := l.Block(MaxBlocks); ok {
		t.Errorf("there is a block %d", MaxBlocks)
	}
}

// ends are where ranges are drawn: at both ends of each family's addresses, and across bytes.
var ends = []string{"0.0.0.0", "10.3.0.200", "255.255.255.0", "::", "2001:db8::ff80", "2001:db8:0:0:ffff:ffff:ffff:ff80", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"}

// drawLayout draws disjoint ranges of up to 70 addresses, in any order.
func drawLayout(t *rapid.T) Layout {
	l := Layout{Name: "p", UID: "u", BlockSize: rapid.IntRange(1, MaxBlockSize).Draw(t, "block size")}
	at := addr(rapid.SampledFrom(ends).Draw(t, "from"))
	for room := 255; room > 0 && (len(l.Ranges) == 0 || rapid.Bool().Draw(t, "another range")); {
		skip := rapid.IntRange(0, min(room-1, 20)).Draw(t, "skip")
		n := rapid.IntRange(1, min(room-skip, 70)).Draw(t, "addresses")
		first := plus(at, int64(skip))
		l.Ranges = append(l.Ranges, Span{first, plus(first, int64(n-1))})
		room -= skip + n
		if at = plus(first, int64(n)); !at.IsValid() {
			break
		}
	}
	l.Ranges = rapid.Permutation(l.Ranges).Draw(t, "order")
	for range rapid.IntRange(0, 3).Draw(t, "exclusions") {
		e := rapid.SampledFrom(l.Ranges).Draw(t, "of")
		l.Exclude = append(l.Exclude, Span{e.First, plus(e.First, int64(rapid.IntRange(0, 80).Draw(t, "excluded")))})
	}
	l.Exclude = slices.DeleteFunc(l.Exclude, func(s Span) bool { return !s.Last.IsValid() })
	if rapid.Bool().Draw(t, "gateway") {
		l.Gateway = rapid.SampledFrom(l.Ranges).Draw(t, "gateway's").Last
	}
	return l
}

// TestIndexIsTheBlocks goes through all blocks: together they have each address of the ranges once, in order, and Index finds it.
func TestIndexIsTheBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		var want, got []netip.Addr
		for _, r := range l.Ranges {
			for a := r.First; r.Contains(a); a = a.Next() {
				want = append(want, a)
			}
		}
		for i := range l.Blocks() {
			s, ok := l.Block(i)
			if !ok {
				t.Fatalf("there is no block %d of %d", i, l.Blocks())
			}
			n := 0
			for a := s.First; s.Contains(a); a = a.Next() {
				got, n = append(got, a), n+1
				if index, ok := l.Index(a); !ok || index != i {
					t.Fatalf("Index(%s) = %d, %t, and block %d is %s", a, index, ok, i, s)
				}
			}
			if n < 1 || n > l.BlockSize {
				t.Fatalf("block %d is %s: %d addresses, and the size is %d", i, s, n, l.BlockSize)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the blocks have %v, want %v", got, want)
		}
		if _, ok := l.Block(l.Blocks()); ok {
			t.Fatalf("there is a block %d", l.Blocks())
		}
	})
}

// TestAddressesAreWhatBlocksGive counts what can be given twice: by spans, and by all blocks.
func TestAddressesAreWhatBlocksGive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		n := 0
		for i := range l.Blocks() {
			b, ok := NewBlock(l, i, partyOf("a"), "boot")
			if !ok || b.Check() != nil {
				t.Fatalf("NewBlock(%d) = %+v, %t: %v", i, b, ok, b.Check())
			}
			n += strings.Count(b.Status.Addresses, "A")
		}
		if got := l.Addresses(); got.Cmp(big.NewInt(int64(n))) != 0 {
			t.Fatalf("Addresses() = %s, and the blocks have %d", got, n)
		}
	})
}

// A block is of use if pods can get any of its addresses.
func TestGives(t *testing.T) {
	p := Pool{Spec: Spec{Subnet: "10.3.0.0/24", Exclude: []string{"10.3.0.4-10.3.0.7", "10.3.0.9"}, Gateway: "10.3.0.8"}}
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"10.3.0.0-10.3.0.3": true, "10.3.0.4-10.3.0.7": false, "10.3.0.4-10.3.0.9": false, "10.3.0.7-10.3.0.10": true, "10.3.0.255": true} {
		span, err := ParseSpan(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.AnyAssignable(span); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

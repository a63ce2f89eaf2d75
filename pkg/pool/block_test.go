package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// partyOf is the party of a node.
func partyOf(name string) Party {
	return Party{Node: name, NodeUID: "uid-" + name, Network: "net", Store: "store-" + name}
}

// blockOf is block 0 of the pool p with 10.3.0.10 and those after it. A holder is a node's name, with ! if it is fenced. The
// first one is A.
func blockOf(addresses string, holders ...string) Block {
	first := addr("10.3.0.10")
	b := Block{Metadata: Meta{Name: "p-0", UID: "uid-1", ResourceVersion: "7"}, Spec: BlockSpec{
		Pool: "p", PoolUID: "u", First: first, Last: plus(first, int64(len(addresses)-1)),
	}, Status: BlockStatus{Epoch: 10, Addresses: addresses}}
	for i, name := range holders {
		h := Holder{ID: letters[i : i+1], Party: partyOf(strings.Trim(name, "!")), Epoch: 1, Boot: "boot"}
		if strings.HasSuffix(name, "!") {
			h.Fenced = "proof"
		}
		b.Status.Holders = append(b.Status.Holders, h)
	}
	b.setLabels()
	return b
}

// unproven is the block with those addresses unproven.
func (b Block) unproven(offsets ...int) Block {
	for _, i := range offsets {
		b.Status.Unproven = append(b.Status.Unproven, b.Address(i))
	}
	return b
}

// wanted is the block with what the nodes want of it: n any addresses, or that with the offset for a claim.
func (b Block) wanted(wants ...Want) Block {
	b.Status.Want = append(b.Status.Want, wants...)
	b.setLabels()
	return b
}

func anyOf(name string, n int) Want { return Want{Party: partyOf(name), Count: n} }

func oneOf(name, address string) Want {
	return Want{Party: partyOf(name), Address: addr(address), Claim: "claim"}
}

// blockText is all that counts of a block, in few words.
func blockText(b Block) string {
	words := []string{b.Status.Addresses}
	for _, h := range b.Status.Holders {
		fenced := strings.Repeat("!", min(1, len(h.Fenced)))
		words = append(words, h.ID+"="+h.Node+fenced)
	}
	for _, a := range b.Status.Unproven {
		words = append(words, fmt.Sprintf("unproven %d", b.Offset(a)))
	}
	for _, w := range b.Status.Want {
		if w.Address.IsValid() {
			words = append(words, fmt.Sprintf("%s wants %d for %s", w.Node, b.Offset(w.Address), w.Claim))
		} else {
			words = append(words, fmt.Sprintf("%s wants %d any", w.Node, w.Count))
		}
	}
	return strings.Join(words, ", ")
}

func TestNewBlockIsAllOfItsMaker(t *testing.T) {
	l, err := specOf(Spec{Subnet: "10.3.0.0/24", Ranges: []string{"10.3.0.10-10.3.0.19"}, Exclude: []string{"10.3.0.11-10.3.0.12"}, Gateway: "10.3.0.16", BlockSize: 8}).Layout()
	if err != nil {
		t.Fatal(err)
	}
	for index, want := range map[int64]string{0: "A--AAA-A, A=a", 1: "AA, A=a"} {
		b, ok := NewBlock(l, index, partyOf("a"), "boot-1")
		if !ok || blockText(b) != want || b.Check() != nil {
			t.Errorf("NewBlock(%d) = %s, %t, %v, want %s", index, blockText(b), ok, b.Check(), want)
		}
		spec, s := b.Spec, b.Status
		if b.Metadata.Name != BlockName("p", index) || spec.Index != index || spec.PoolUID != "u" || spec.Node != "a" || s.Epoch != 1 || s.Holders[0].Boot != "boot-1" || s.Holders[0].Epoch != 1 {
			t.Errorf("NewBlock(%d) = %+v", index, b)
		}
		if _, has := b.Metadata.Labels[NodeLabel("a")]; !has || b.Metadata.Labels[PoolLabel] != "p" {
			t.Errorf("block %d has the labels %v", index, b.Metadata.Labels)
		}
	}
	if b, ok := NewBlock(l, 2, partyOf("a"), "boot-1"); ok {
		t.Errorf("NewBlock(2) = %s of a pool with 2 blocks", blockText(b))
	}
}

func TestNewBlockOfSomeAddresses(t *testing.T) {
	l, err := specOf(Spec{Subnet: "10.3.0.0/24", Ranges: []string{"10.3.0.10-10.3.0.19"}, Exclude: []string{"10.3.0.11-10.3.0.12"}, BlockSize: 8}).Layout()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		index     int64
		addresses string
		want      string
	}{
		"some":                         {0, "10.3.0.10 10.3.0.14", "A--.A..., A=a"},
		"all":                          {1, "10.3.0.19 10.3.0.18", "AA, A=a"},
		"none of the block":            {0, "10.3.0.18", ""},
		"none":                         {0, "", ""},
		"one that is never given":      {0, "10.3.0.11", ""},
		"one that is never given, too": {0, "10.3.0.12 10.3.0.17", ".--....A, A=a"},
		"of a block that is not there": {2, "10.3.0.10", ""},
	} {
		var all []netip.Addr
		for _, a := range strings.Fields(test.addresses) {
			all = append(all, addr(a))
		}
		b, ok := NewBlockWith(l, test.index, partyOf("a"), "boot-1", all)
		if ok != (test.want != "") || ok && (blockText(b) != test.want || b.Check() != nil) {
			t.Errorf("%s: NewBlockOf = %s, %t, %v, want %s", name, blockText(b), ok, b.Check(), test.want)
		}
		if _, has := b.Metadata.Labels[NodeLabel("a")]; ok && (!has || b.Spec.Node != "a" || b.Status.Holders[0].Boot != "boot-1") {
			t.Errorf("%s: NewBlockOf = %+v", name, b)
		}
	}
}

// TestNewBlockOfAny draws layouts and addresses. The maker has those that it names and that are given, and can adopt them. All
// others are as in a block of which nobody has anything.
func TestNewBlockOfAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, MaxBlockSize).Draw(t, "size")
		first := addr("10.3.0.10")
		at := func(name string) netip.Addr { return plus(first, int64(rapid.IntRange(0, size-1).Draw(t, name))) }
		l := Layout{Name: "p", UID: "u", BlockSize: size, Ranges: []Span{{first, plus(first, int64(size-1))}}, Gateway: at("gateway")}
		if rapid.Bool().Draw(t, "excludes") {
			l.Exclude = []Span{{first, at("excluded")}}
		}
		all := rapid.SliceOf(rapid.Custom(func(t *rapid.T) netip.Addr { return plus(first, int64(rapid.IntRange(-1, size).Draw(t, "offset"))) })).Draw(t, "addresses")
		b, ok := NewBlockWith(l, 0, partyOf("a"), "boot-1", all)
		has := 0
		for i := range size {
			a := b.Address(i)
			want := byte(Unassigned)
			switch {
			case l.Excluded(a):
				want = Excluded
			case slices.Contains(all, a):
				want, has = letters[0], has+1
			}
			if b.Status.Addresses[i] != want {
				t.Fatalf("%s: %s is %q, want %q", blockText(b), a, b.Status.Addresses[i], want)
			}
		}
		if ok != (has > 0) {
			t.Fatalf("%s: %t", blockText(b), ok)
		}
		if !ok {
			return
		}
		b.Metadata.UID = "uid"
		if g, lost, err := (Grant{}).Adopt(b, partyOf("a")); err != nil || len(lost) > 0 || len(g.Offsets(GrantedChars)) != has || b.Check() != nil {
			t.Fatalf("%s: Adopt = %+v, %v, %v, Check = %v", blockText(b), g, lost, err, b.Check())
		}
		checkOwners(t, b)
	})
}

func TestCheckOfHostileBlocks(t *testing.T) {
	change := func(f func(*Block)) Block {
		b := blockOf("AB.-", "a", "b!").wanted(anyOf("c", 1))
		f(&b)
		return b
	}
	for name, test := range map[string]struct {
		b    Block
		want string
	}{
		"as relink writes it":       {change(func(*Block) {}), ""},
		"a want of an address away": {change(func(b *Block) { b.Status.Want[0].Address = addr("10.3.0.14") }), ""},
		"of another pool":           {change(func(b *Block) { b.Spec.Pool = "q" }), "its spec is of q-0"},
		"of another index":          {change(func(b *Block) { b.Spec.Index = 1 }), "its spec is of p-1"},
		"a negative index":          {change(func(b *Block) { b.Spec.Index, b.Metadata.Name = -1, "p--1" }), "index -1, epoch 10"},
		"no epoch":                  {change(func(b *Block) { b.Status.Epoch = 0 }), "index 0, epoch 0"},
		"the last epoch":            {change(func(b *Block) { b.Status.Epoch = maxEpoch + 1 }), "epoch 4000000000000000001"},
		"no addresses":              {change(func(b *Block) { b.Status.Addresses = "" }), "it has 0 characters for the addresses 10.3.0.10-10.3.0.13"},
		"too few characters":        {change(func(b *Block) { b.Status.Addresses = "AB." }), "it has 3 characters for the addresses 10.3.0.10-10.3.0.13"},
		"too many characters":       {change(func(b *Block) { b.Status.Addresses = "AB.--" }), "it has 5 characters for the addresses 10.3.0.10-10.3.0.13"},
		"too large":                 {blockOf(strings.Repeat("A", MaxBlockSize+1), "a"), "it has 65 characters for the addresses 10.3.0.10-10.3.0.74"},
		"no first address":          {change(func(b *Block) { b.Spec.First = netip.Addr{} }), "it has 4 characters for the addresses"},
		"beyond the last address":   {change(func(b *Block) { b.Spec.First = addr("255.255.255.254") }), "it has 4 characters for the addresses 255.255.255.254-10.3.0.13"},
		"a zone":                    {change(func(b *Block) { b.Spec.First, b.Spec.Last = addr("fe80::1%eth0"), addr("fe80::4") }), "it has 4 characters for the addresses fe80::1%eth0-fe80::4"},
		"IPv4 in IPv6":              {change(func(b *Block) { b.Spec.First, b.Spec.Last = addr("::ffff:10.3.0.1"), addr("::ffff:10.3.0.4") }), "it has 4 characters for the addresses ::ffff:10.3.0.1-::ffff:10.3.0.4"},
		"of two families":           {change(func(b *Block) { b.Spec.Last = addr("::4") }), "it has 4 characters for the addresses 10.3.0.10-::4"},
		"a character of nobody":     {change(func(b *Block) { b.Status.Addresses = "ABC-" }), `10.3.0.12 is of "C", who is no holder`},
		"characters beyond ASCII":   {change(func(b *Block) { b.Status.Addresses = "ABé" }), `10.3.0.12 is of "\xc3", who is no holder`},
		"a holder without an ID":    {change(func(b *Block) { b.Status.Holders[1].ID = "" }), `holder "" of node b`},
		"a holder that is nobody":   {change(func(b *Block) { b.Status.Holders[1].ID = "." }), `holder "." of node b`},
		"a holder that is never":    {change(func(b *Block) { b.Status.Holders[1].ID = "-" }), `holder "-" of node b`},
		"a holder with two letters": {change(func(b *Block) { b.Status.Holders[1].ID = "BC" }), `holder "BC" of node b`},
		"two holders with a letter": {change(func(b *Block) { b.Status.Holders[1].ID = "A" }), `holder "A" of node b`},
		"a holder twice":            {change(func(b *Block) { b.Status.Holders[1].Party = b.Status.Holders[0].Party }), `holder "B" of node a`},
		"another's store":           {change(func(b *Block) { b.Status.Holders[1].Store = b.Status.Holders[0].Store }), ""},
		"a holder without a store":  {change(func(b *Block) { b.Status.Holders[1].Store = "" }), `holder "B" of node b`},
		"a want without a store":    {change(func(b *Block) { b.Status.Want[0].Store = "" }), "node c wants 1 of it"},
		"a want of less than none":  {change(func(b *Block) { b.Status.Want[0].Count = -1 }), "node c wants -1 of it"},
	} {
		err := test.b.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Check() = %v, want %q", name, err, test.want)
		}
	}
}

func TestWhoHasAnAddress(t *testing.T) {
	b := blockOf("AB.-", "a", "b!")
	for i, want := range []string{"a", "b", "", ""} {
		if h, is := b.HolderOf(i); h.Node != want || is != (want != "") {
			t.Errorf("HolderOf(%d) = %q, %t, want %q", i, h.Node, is, want)
		}
		if a, f := b.HeldBy(partyOf("a"), i), b.HeldBy(partyOf("b"), i); a != (i == 0) || f {
			t.Errorf("Has(a, %d) = %t, Has(b, %d) = %t: b is fenced", i, a, i, f)
		}
	}
	if free, fenced := fmt.Sprint(b.FreeOffsets()), fmt.Sprint(b.FencedOffsets()); free != "[2]" || fenced != "[1]" {
		t.Errorf("Free() = %s, Fenced() = %s", free, fenced)
	}
	for a, want := range map[string]int{"10.3.0.10": 0, "10.3.0.13": 3, "10.3.0.9": -1, "10.3.0.14": -1, "::": -1, "::ffff:10.3.0.10": -1} {
		if i := b.Offset(addr(a)); i != want || i >= 0 && b.Address(i) != addr(a) {
			t.Errorf("Offset(%s) = %d, want %d", a, i, want)
		}
	}
}

func TestUnusedIsWithoutHolders(t *testing.T) {
	for name, test := range map[string]struct {
		b    Block
		want bool
	}{
		"nobody has any":          {blockOf("..-"), true},
		"all are never given":     {blockOf("--"), true},
		"somebody has one":        {blockOf(".A", "a"), false},
		"a fenced node may come":  {blockOf("..", "a!"), false},
		"somebody asks for any":   {blockOf("..").wanted(anyOf("a", 1)), true},
		"one is of a lost holder": {blockOf(".Z"), false},
	} {
		if got := test.b.Unused(); got != test.want {
			t.Errorf("%s: Unused() = %t, want %t", name, got, test.want)
		}
	}
}

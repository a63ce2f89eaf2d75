package pool

import "testing"

// checkUnchanged are the tests that all steps share: the step changes only a copy, the block stays as it must be, and the epoch grows if an
// address has changed its owner.
func checkUnchanged(t *testing.T, name string, before, was, is Block) {
	t.Helper()
	if blockText(before) != blockText(was) {
		t.Errorf("%s: the step has changed what it was given: %s, and it was %s", name, blockText(was), blockText(before))
	}
	if err := is.Check(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if is.Status.Addresses != was.Status.Addresses && is.Status.Epoch <= was.Status.Epoch || is.Status.Epoch < was.Status.Epoch {
		t.Errorf("%s: the epoch is %d for %s, and was %d for %s", name, is.Status.Epoch, is.Status.Addresses, was.Status.Epoch, was.Status.Addresses)
	}
	for _, h := range is.Status.Holders {
		if _, has := is.Metadata.Labels[NodeLabel(h.Node)]; !has {
			t.Errorf("%s: node %s is a holder, and does not find the block by its label", name, h.Node)
		}
	}
	for _, w := range is.Status.Want {
		if _, has := is.Metadata.Labels[NodeLabel(w.Node)]; !has {
			t.Errorf("%s: node %s wants something, and does not find the block by its label", name, w.Node)
		}
	}
	if is.Metadata.UID != was.Metadata.UID || is.Metadata.ResourceVersion != was.Metadata.ResourceVersion {
		t.Errorf("%s: the change is not of the block that was read", name)
	}
}

func TestTake(t *testing.T) {
	for name, test := range map[string]struct {
		b       Block
		offsets []int
		want    string
		n       int
	}{
		"what is nobody's":                      {blockOf("A.", "a"), []int{1}, "AB, A=a, B=me", 1},
		"more, as a holder":                     {blockOf("A.", "me"), []int{1}, "AA, A=me", 1},
		"what a fenced node had, which stays":   {blockOf("AA", "a!"), []int{0}, "BA, A=a!, B=me, unproven 0", 1},
		"the last that a fenced node had":       {blockOf("AB", "a!", "me"), []int{0}, "BB, A=a!, B=me, unproven 0", 1},
		"both kinds":                            {blockOf("A.", "a!"), []int{0, 1}, "BB, A=a!, B=me, unproven 0", 2},
		"unproven before":                       {blockOf("A", "a!").unproven(0), []int{0}, "B, A=a!, B=me, unproven 0", 1},
		"nobody's, and unproven":                {blockOf(".A", "a!").unproven(0), []int{0}, "BA, A=a!, B=me, unproven 0", 1},
		"not what somebody has":                 {blockOf("A.", "a"), []int{0}, "A., A=a", 0},
		"not what is never given":               {blockOf("-A", "a"), []int{0}, "-A, A=a", 0},
		"not what it has":                       {blockOf("A", "me"), []int{0}, "A, A=me", 0},
		"nothing as a fenced node":              {blockOf(".A", "me!"), []int{0}, ".A, A=me!", 0},
		"not its own as a fenced node":          {blockOf("A", "me!"), []int{0}, "A, A=me!", 0},
		"nothing of another's as a fenced node": {blockOf("AB", "me!", "a!"), []int{1}, "AB, A=me!, B=a!", 0},
		"what it asked for is done":             {blockOf(".A", "a").wanted(oneOf("me", "10.3.0.10"), oneOf("me", "10.3.0.11"), oneOf("b", "10.3.0.10")), []int{0}, "BA, A=a, B=me, me wants 1 for claim, b wants 0 for claim", 1},
		"what it asked for of any kind stays":   {blockOf(".A", "a").wanted(anyOf("me", 2)), []int{0}, "BA, A=a, B=me, me wants 2 any", 1},
		"the letter of who has left":            {blockOf("B.", "me", "a").Release(partyOf("me"), nil, nil), []int{1}, "BA, B=a, A=me", 1},
	} {
		before := test.b.clone()
		is, n := test.b.Take(partyOf("me"), test.offsets)
		if blockText(is) != test.want || n != test.n {
			t.Errorf("%s: Take = %s, %d, want %s, %d", name, blockText(is), n, test.want, test.n)
		}
		checkUnchanged(t, name, before, test.b, is)
	}
}

// TestNoLetterIsLeft has a block with as many holders as there are letters. One of them is fenced, and has nothing any more.
func TestNoLetterIsLeft(t *testing.T) {
	var names []string
	for i := range letters {
		names = append(names, "node-"+letters[i:i+1])
	}
	names[63] += "!"
	b := blockOf(letters[:63]+".", names...)
	if is, n := b.Take(partyOf("me"), []int{63}); n != 0 || is.Status.Addresses != b.Status.Addresses {
		t.Errorf("Take = %s, %d, want nothing", blockText(is), n)
	}
	for what, is := range map[string]Block{
		"GiveBack": b.wanted(anyOf("me", 1)).Release(partyOf("node-B"), []int{1}, nil),
		"GiveTo":   b.HandOver(partyOf("node-B"), []int{1}, partyOf("me")),
	} {
		if want := "A." + letters[2:63] + "."; is.Status.Addresses != want || is.Check() != nil {
			t.Errorf("%s = %s, %v, want %s", what, blockText(is), is.Check(), want)
		}
	}
	b, _ = b.Fence(func(p Party) bool { return p.Node == "node-A" }, "proof")
	if is, n := b.Release(partyOf("node-B"), []int{1}, nil).Take(partyOf("me"), []int{0}); n != 1 || !is.HeldBy(partyOf("me"), 0) || is.Check() != nil {
		t.Errorf("Take = %s, %d, want the letter of a node that has left", blockText(is), n)
	}
}

func TestAsk(t *testing.T) {
	b := blockOf("AB", "a", "b").wanted(anyOf("me", 1), oneOf("me", "10.3.0.10"), oneOf("me", "10.3.0.11"), anyOf("c", 3))
	const rest = "AB, A=a, B=b, "
	for name, test := range map[string]struct {
		w    Want
		want string
	}{
		"another count":             {anyOf("me", 4), rest + "me wants 0 for claim, me wants 1 for claim, c wants 3 any, me wants 4 any"},
		"an address again":          {oneOf("me", "10.3.0.10"), rest + "me wants 1 any, me wants 1 for claim, c wants 3 any, me wants 0 for claim"},
		"nothing of any kind":       {anyOf("me", 0), rest + "me wants 0 for claim, me wants 1 for claim, c wants 3 any"},
		"an address no more":        {Want{Party: partyOf("me"), Address: addr("10.3.0.11")}, rest + "me wants 1 any, me wants 0 for claim, c wants 3 any"},
		"another node":              {anyOf("d", 1), rest + "me wants 1 any, me wants 0 for claim, me wants 1 for claim, c wants 3 any, d wants 1 any"},
		"nothing, who asks nothing": {anyOf("d", 0), rest + "me wants 1 any, me wants 0 for claim, me wants 1 for claim, c wants 3 any"},
	} {
		before := b.clone()
		is := b.Request(test.w)
		if blockText(is) != test.want || is.Status.Epoch != b.Status.Epoch {
			t.Errorf("%s: Ask = %s in epoch %d, want %s in epoch %d", name, blockText(is), is.Status.Epoch, test.want, b.Status.Epoch)
		}
		checkUnchanged(t, name, before, b, is)
	}
}

func TestGiveBack(t *testing.T) {
	for name, test := range map[string]struct {
		b       Block
		offsets []int
		want    string
	}{
		"to nobody":                              {blockOf("AA", "me"), []int{1}, "A., A=me"},
		"the last":                               {blockOf("A-", "me"), []int{0}, ".-"},
		"to who asks for any":                    {blockOf("AA", "me").wanted(anyOf("a", 2)), []int{1}, "AB, A=me, B=a, a wants 1 any"},
		"to who asks for any, as often":          {blockOf("AAA", "me").wanted(anyOf("a", 1), anyOf("b", 1)), []int{0, 1, 2}, "BC., B=a, C=b"},
		"to who asks for this one first":         {blockOf("AA", "me").wanted(anyOf("a", 1), oneOf("b", "10.3.0.11")), []int{1}, "AB, A=me, B=b, a wants 1 any"},
		"not to who asks for another one":        {blockOf("AA", "me").wanted(oneOf("b", "10.3.0.11")), []int{0}, ".A, A=me, b wants 1 for claim"},
		"not to itself":                          {blockOf("A", "me").wanted(anyOf("me", 1), oneOf("me", "10.3.0.10")), []int{0}, "., me wants 1 any, me wants 0 for claim"},
		"not to a fenced node":                   {blockOf("AB", "me", "a!").wanted(anyOf("a", 1)), []int{0}, ".B, B=a!, a wants 1 any"},
		"to a holder":                            {blockOf("AB", "me", "a").wanted(anyOf("a", 1)), []int{0}, "BB, B=a"},
		"it stays unproven":                      {blockOf("AB", "me", "x!").unproven(0).wanted(anyOf("a", 1)), []int{0}, "CB, B=x!, C=a, unproven 0"},
		"it stays unproven as nobody's":          {blockOf("AB", "me", "x!").unproven(0), []int{0}, ".B, B=x!, unproven 0"},
		"not what others have":                   {blockOf("AB.-", "me", "a"), []int{1, 2, 3}, "AB.-, A=me, B=a"},
		"nothing without an address":             {blockOf("A", "a").wanted(anyOf("b", 1)), []int{0}, "A, A=a, b wants 1 any"},
		"all, and another one's want is not his": {blockOf("AA", "me").wanted(anyOf("a", 9)), []int{0, 1}, "BB, B=a, a wants 7 any"},
	} {
		before := test.b.clone()
		is := test.b.Release(partyOf("me"), test.offsets, nil)
		if blockText(is) != test.want {
			t.Errorf("%s: GiveBack = %s, want %s", name, blockText(is), test.want)
		}
		checkUnchanged(t, name, before, test.b, is)
	}
}

func TestGiveTo(t *testing.T) {
	for name, test := range map[string]struct {
		b    Block
		to   string
		want string
	}{
		"a new holder":              {blockOf("AA", "me"), "a", "BA, A=me, B=a"},
		"a holder":                  {blockOf("AB", "me", "a"), "a", "BB, B=a"},
		"before who asks here":      {blockOf("A", "me").wanted(anyOf("b", 1)), "a", "B, B=a, b wants 1 any"},
		"what it asked for is done": {blockOf("A", "me").wanted(oneOf("a", "10.3.0.10")), "a", "B, B=a"},
		"not a fenced node":         {blockOf("AB", "me", "a!"), "a", ".B, B=a!"},
		"not what another has":      {blockOf("A", "a"), "b", "A, A=a"},
		"not as a fenced node":      {blockOf("A", "me!"), "a", "A, A=me!"},
	} {
		before := test.b.clone()
		is := test.b.HandOver(partyOf("me"), []int{0}, partyOf(test.to))
		if blockText(is) != test.want {
			t.Errorf("%s: GiveTo = %s, want %s", name, blockText(is), test.want)
		}
		checkUnchanged(t, name, before, test.b, is)
	}
}

func TestFence(t *testing.T) {
	for name, test := range map[string]struct {
		b       Block
		want    string
		changed bool
	}{
		"a holder":                      {blockOf("AB", "dead", "b"), "AB, A=dead!, B=b", true},
		"a holder that is fenced":       {blockOf("AB", "dead!", "b"), "AB, A=dead!, B=b", false},
		"who only asks":                 {blockOf("A", "a").wanted(anyOf("dead", 1), anyOf("b", 1), oneOf("dead", "10.3.0.10")), "A, A=a, b wants 1 any", true},
		"a holder that asks":            {blockOf("AB", "dead", "b").wanted(anyOf("dead", 1)), "AB, A=dead!, B=b", true},
		"who has nothing to do with it": {blockOf("A", "a").wanted(anyOf("b", 1)), "A, A=a, b wants 1 any", false},
	} {
		before := test.b.clone()
		is, changed := test.b.Fence(func(p Party) bool { return p.Node == "dead" }, "proof")
		if blockText(is) != test.want || changed != test.changed {
			t.Errorf("%s: Fence = %s, %t, want %s, %t", name, blockText(is), changed, test.want, test.changed)
		}
		if h, held := is.Holder(partyOf("dead")); held && h.Fenced != "proof" {
			t.Errorf("%s: the proof is %q", name, h.Fenced)
		}
		_, held := test.b.Holder(partyOf("dead"))
		if grown := is.Status.Epoch > test.b.Status.Epoch; grown != (held && changed) {
			t.Errorf("%s: the epoch is %d, and was %d", name, is.Status.Epoch, test.b.Status.Epoch)
		}
		checkUnchanged(t, name, before, test.b, is)
	}
}

func TestLeave(t *testing.T) {
	for name, test := range map[string]struct {
		b    Block
		want string
	}{
		"with what nobody took":       {blockOf("AB", "me!", "a"), ".B, B=a"},
		"others have it by now":       {blockOf("B", "me!", "a").unproven(0), "B, B=a"},
		"another node is fenced, too": {blockOf("AB", "me!", "a!").unproven(1), ".B, B=a!, unproven 1"},
		"as the last":                 {blockOf("A-", "me!").unproven(0), ".-"},
		"never without a fence":       {blockOf("AB", "me", "a!").unproven(1), "AB, A=me, B=a!, unproven 1"},
		"never who is no holder":      {blockOf("A", "a!").unproven(0), "A, A=a!, unproven 0"},
		"what it wants stays":         {blockOf("A", "me!").wanted(anyOf("me", 1)), "., me wants 1 any"},
	} {
		before := test.b.clone()
		is := test.b.Unfence(partyOf("me"), nil)
		if blockText(is) != test.want {
			t.Errorf("%s: Leave = %s, want %s", name, blockText(is), test.want)
		}
		checkUnchanged(t, name, before, test.b, is)
	}
}

func TestConfirm(t *testing.T) {
	for name, test := range map[string]struct {
		b       Block
		boot    string
		changed bool
	}{
		"a new boot":       {blockOf("AB", "me", "a"), "next", true},
		"confirmed before": {blockOf("A", "me"), "boot", false},
		"a fenced node":    {blockOf("A", "me!"), "next", false},
		"who has nothing":  {blockOf("A", "a"), "next", false},
	} {
		before := test.b.clone()
		is, changed := test.b.Confirm(partyOf("me"), test.boot)
		h, held := is.Holder(partyOf("me"))
		if changed != test.changed || held && (h.Boot == test.boot) != (changed || test.boot == "boot") {
			t.Errorf("%s: Confirm has the boot %q, %t, want %t", name, h.Boot, changed, test.changed)
		}
		if blockText(is) != blockText(before) || is.Status.Epoch != before.Status.Epoch {
			t.Errorf("%s: Confirm = %s, want %s", name, blockText(is), blockText(before))
		}
		if a, other := is.Holder(partyOf("a")); other && a.Boot != "boot" {
			t.Errorf("%s: the boot of another node is %q", name, a.Boot)
		}
		if test.boot != "boot" {
			continue
		}
		checkUnchanged(t, name, before, is, is.Request(anyOf("me", 0)))
	}
}

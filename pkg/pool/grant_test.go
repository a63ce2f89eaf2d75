package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// grantOfBlock is what a node has of blockOf's block.
func grantOfBlock(addresses string) Grant {
	return Grant{Pool: "p", PoolUID: "u", Index: 0, Block: "uid-1", Epoch: 10, First: addr("10.3.0.10"), Addresses: addresses}
}

func TestGrantKnowsItsAddresses(t *testing.T) {
	g := grantOfBlock(".+?-")
	if g.Name() != "p-0" || g.Address(2) != addr("10.3.0.12") || g.Last() != addr("10.3.0.13") {
		t.Errorf("%s has 2 at %s, and ends with %s", g.Name(), g.Address(2), g.Last())
	}
	for a, want := range map[string]int{"10.3.0.10": 0, "10.3.0.13": 3, "10.3.0.9": -1, "10.3.0.14": -1, "::1": -1} {
		if i := g.Offset(addr(a)); i != want {
			t.Errorf("Offset(%s) = %d, want %d", a, i, want)
		}
	}
	for i, want := range []string{"false false", "true false", "true true", "false false"} {
		if gives, probe := g.Assignable(i); fmt.Sprint(gives, probe) != want {
			t.Errorf("May(%d) = %t, %t, want %s", i, gives, probe, want)
		}
	}
	for chars, want := range map[string]string{GrantedChars: "[1 2]", "-": "[3]", ".": "[0]", "": "[]"} {
		if got := fmt.Sprint(g.Offsets(chars)); got != want {
			t.Errorf("Offsets(%q) = %s, want %s", chars, got, want)
		}
	}
	for addresses, want := range map[string]bool{"": true, "...": true, ".+": false, "?": false, "-": false} {
		if got := grantOfBlock(addresses).Empty(); got != want {
			t.Errorf("%q: Empty() = %t, want %t", addresses, got, want)
		}
	}
}

func TestAdopt(t *testing.T) {
	for name, test := range map[string]struct {
		grant string
		b     Block
		want  string
		lost  string
	}{
		"all of a new block":                        {"", blockOf("AA-", "me"), "++.", "[]"},
		"nothing of another's":                      {"", blockOf("AA-", "a"), "...", "[]"},
		"what was taken":                            {"+.", blockOf("AA", "me"), "++", "[]"},
		"what is unproven":                          {"+.", blockOf("AA", "me").unproven(1), "+?", "[]"},
		"what is proven by now":                     {"+?", blockOf("AA", "me"), "++", "[]"},
		"what is unproven after all":                {"+", blockOf("A", "me").unproven(0), "?", "[]"},
		"a mark stays, whatever the API says":       {"-+", blockOf("AA", "me"), "-+", "[]"},
		"a mark of an unproven address":             {"-", blockOf("A", "me").unproven(0), "-", "[]"},
		"a mark is over when nobody has it":         {"-+", blockOf(".A", "me"), ".+", "[]"},
		"a mark is over when another has it":        {"-+", blockOf("BA", "me", "a"), ".+", "[]"},
		"what the API has forgotten":                {"+?-+", blockOf("...A", "me"), "...+", "[0 1]"},
		"what another has is lost":                  {"++", blockOf("BA", "me", "a"), ".+", "[0]"},
		"a fenced node has nothing":                 {"+?-.", blockOf("AAAA", "me!"), "....", "[0 1]"},
		"a fenced node has nothing of what is left": {"++", blockOf("BA", "me!", "a").unproven(0), "..", "[0 1]"},
	} {
		g := grantOfBlock(test.grant)
		if test.grant == "" {
			g = Grant{}
		}
		test.b.Status.Epoch = 12
		for i := range test.b.Status.Holders {
			test.b.Status.Holders[i].Epoch = 11
		}
		is, lost, err := g.Adopt(test.b, partyOf("me"))
		want := grantOfBlock(test.want)
		if want.Epoch = 12; err != nil || is != want || fmt.Sprint(lost) != test.lost {
			t.Errorf("%s: Adopt = %+v, %v, %v, want %+v, %s", name, is, lost, err, want, test.lost)
		}
	}
}

func TestAdoptOfAnOlderOrAnotherBlock(t *testing.T) {
	for name, test := range map[string]struct {
		grant string
		// uid and epoch are the block's. The grant is of uid-1 in epoch 10.
		uid   string
		epoch int64
		first string
		size  int
		want  error
		is    string
	}{
		"the same epoch":                         {"++", "uid-1", 10, "10.3.0.10", 2, nil, "++"},
		"a later epoch":                          {"+.", "uid-1", 11, "10.3.0.10", 2, nil, "++"},
		"more in the same epoch":                 {"+.", "uid-1", 10, "10.3.0.10", 2, ErrStale, ""},
		"an older epoch":                         {"+.", "uid-1", 9, "10.3.0.10", 2, ErrStale, ""},
		"an older epoch, and marks":              {"-.", "uid-1", 9, "10.3.0.10", 2, ErrStale, ""},
		"an older epoch, and nothing":            {"..", "uid-1", 9, "10.3.0.10", 2, ErrStale, ""},
		"another block":                          {"+.", "uid-2", 20, "10.3.0.10", 2, ErrReplaced, ""},
		"another block, and an unproven address": {"?.", "uid-2", 20, "10.3.0.10", 2, ErrReplaced, ""},
		"another block, and only marks":          {"-.", "uid-2", 1, "10.3.0.10", 2, nil, "-+"},
		"another block, and nothing":             {"..", "uid-2", 1, "10.3.0.10", 2, nil, "++"},
		"other addresses":                        {"+.", "uid-1", 20, "10.3.0.11", 2, ErrReplaced, ""},
		"other addresses, and only marks":        {"-.", "uid-2", 1, "10.3.0.11", 2, nil, "++"},
		"more addresses":                         {"+.", "uid-1", 20, "10.3.0.10", 3, ErrReplaced, ""},
		"more addresses, and nothing":            {"..", "uid-2", 1, "10.3.0.10", 3, nil, "+++"},
	} {
		g, b := grantOfBlock(test.grant), blockOf(strings.Repeat("A", test.size), "me")
		b.Metadata.UID, b.Status.Epoch, b.Spec.First = test.uid, test.epoch, addr(test.first)
		b.Status.Holders[0].Epoch = test.epoch
		is, lost, err := g.Adopt(b, partyOf("me"))
		if !errors.Is(err, test.want) || len(lost) > 0 {
			t.Errorf("%s: Adopt = %v, %v, want %v", name, lost, err, test.want)
		}
		if test.want != nil {
			if is != g || !strings.Contains(err.Error(), "AddressBlock p-0: ") {
				t.Errorf("%s: Adopt = %+v, %v: the grant must stay as it was, and the error name the block", name, is, err)
			}
			continue
		}
		if is.Addresses != test.is || is.Block != test.uid || is.Epoch != test.epoch || is.First != addr(test.first) {
			t.Errorf("%s: Adopt = %+v, want %s", name, is, test.is)
		}
	}
}

func TestGone(t *testing.T) {
	g, lost := grantOfBlock(".+?-").BlockDeleted()
	if !g.Empty() || fmt.Sprint(lost) != "[1 2]" || g.Block != "" || g.Ended != "uid-1 " {
		t.Errorf("Gone() = %+v, %v", g, lost)
	}
	if g, lost := grantOfBlock("--").BlockDeleted(); !g.Empty() || lost != nil {
		t.Errorf("Gone() of marks = %+v, %v, want that nothing is lost", g, lost)
	}
}

// A block that the party knows to be deleted comes back only with an API that has lost something.
func TestAdoptOfABlockThatWasDeleted(t *testing.T) {
	met := func(uid string) Block {
		b := blockOf("AA", "me")
		b.Metadata.UID = uid
		return b
	}
	g, _ := grantOfBlock("-.").BlockDeleted()
	for i := 2; i <= maxEnded+1; i++ {
		uid := fmt.Sprintf("uid-%d", i)
		if _, _, err := g.Adopt(met("uid-1"), partyOf("me")); i <= maxEnded && !errors.Is(err, ErrStale) {
			t.Errorf("Adopt of uid-1 before %s: %v, want %v", uid, err, ErrStale)
		}
		is, _, err := g.Adopt(met(uid), partyOf("me"))
		if err != nil || is.Addresses != "++" || is.Block != uid {
			t.Fatalf("Adopt of %s = %+v, %v", uid, is, err)
		}
		// Whether it was seen to be deleted, or the next one was seen, is the same.
		if g, _ = is.Mark([]int{0, 1}).BlockDeleted(); i%2 == 0 {
			g = is
			g.Addresses = ".."
		}
	}
	if n := len(strings.Fields(g.Ended)); n != maxEnded || strings.Contains(g.Ended, "uid-1") {
		t.Errorf("the grant knows %d blocks: %q", n, g.Ended)
	}
	last := met(fmt.Sprintf("uid-%d", maxEnded))
	if _, _, err := g.Adopt(last, partyOf("me")); !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "the block with the UID uid-4 was deleted") {
		t.Errorf("Adopt of uid-4: %v", err)
	}
	is, _ := g.Assert(last, partyOf("me"))
	kept, err := g.AdoptAsserted(is, partyOf("me"), nil)
	if again, _, wrong := kept.Adopt(is, partyOf("me")); err != nil || wrong != nil || !again.Empty() || blockText(is) != ".." {
		t.Errorf("after a recovery: %v, %v, %+v, %s", err, wrong, again, blockText(is))
	}
}

// After the API has lost something, others change the block: its epoch is soon as late as the one that the party knows of.
func TestAdoptOfAnOlderBlockThatOthersHaveChanged(t *testing.T) {
	given := blockOf("AAA", "me", "a")
	given.Status.Epoch = 5
	given.Status.Holders[0].Epoch = 5
	g, _, err := Grant{}.Adopt(given.HandOver(partyOf("me"), []int{1}, partyOf("a")), partyOf("me"))
	if err != nil || g.Addresses != "+.+" || g.Epoch != 6 {
		t.Fatalf("Adopt = %+v, %v", g, err)
	}
	later := given
	later.Status.Epoch = 9
	if is, _, err := g.Adopt(later, partyOf("me")); !errors.Is(err, ErrStale) || is != g || !strings.Contains(err.Error(), "the party got its last address in epoch 5, and this node knows of 6 and has less") {
		t.Errorf("Adopt = %+v, %v, want %v", is, err, ErrStale)
	}
	later.Status.Holders[0].Epoch = 9
	if is, _, err := g.Adopt(later, partyOf("me")); err != nil || is.Addresses != "+++" {
		t.Errorf("Adopt of what came back = %+v, %v", is, err)
	}
}

// Who has an address in an API that has lost something may give it up. Until then the grant stays.
func TestAssertedWaits(t *testing.T) {
	g := grantOfBlock("++?.")
	b, others := g.Assert(blockOf("BBBB", "me", "a"), partyOf("me"))
	kept, err := g.AdoptAsserted(b, partyOf("me"), others[1:])
	if err != nil || kept.Addresses != ".+?." || kept.Epoch != b.Status.Epoch {
		t.Errorf("Asserted = %+v, %v", kept, err)
	}
	b = b.Release(partyOf("a"), []int{0, 1, 2, 3}, nil)
	if b, others = kept.Assert(b, partyOf("me")); len(others) > 0 || blockText(b) != ".AA., A=me" {
		t.Errorf("Assert after the other one has = %s, %v", blockText(b), others)
	}
}

func TestWhatIsAsserted(t *testing.T) {
	older := blockOf("A", "a")
	older.Status.Epoch = 9
	deleted, _ := grantOfBlock(".").BlockDeleted()
	same := blockOf("A", "a")
	another := blockOf("A", "a")
	another.Metadata.UID = "uid-2"
	for name, test := range map[string]struct {
		g    Grant
		b    Block
		want bool
	}{
		"something":                           {grantOfBlock("+"), same, true},
		"a mark":                              {grantOfBlock("-"), same, true},
		"nothing of it":                       {grantOfBlock("."), same, false},
		"it was never met":                    {Grant{}, same, false},
		"nothing of it, but the API says so":  {Grant{}, blockOf("A", "me"), true},
		"nothing of it, but a newer state":    {grantOfBlock("."), older, true},
		"nothing of it, and it was deleted":   {deleted, same, true},
		"nothing of it, and another was made": {deleted, another, false},
	} {
		if is := test.g.NeedsAssert(test.b, partyOf("me")); is != test.want {
			t.Errorf("%s: Asserts = %t, want %t", name, is, test.want)
		}
	}
}

func TestMark(t *testing.T) {
	for offsets, want := range map[string]string{"0": ".+?-", "1": ".-?-", "2": ".+--", "3": ".+?-", "": ".+?-", "1 2": ".---"} {
		var all []int
		for _, o := range strings.Fields(offsets) {
			all = append(all, int(o[0]-'0'))
		}
		g := grantOfBlock(".+?-")
		if is := g.Mark(all); is != grantOfBlock(want) || g != grantOfBlock(".+?-") {
			t.Errorf("Mark(%s) = %s of %s, want %s", offsets, is.Addresses, g.Addresses, want)
		}
	}
}

func TestAssert(t *testing.T) {
	for name, test := range map[string]struct {
		grant  string
		b      Block
		want   string
		others []int
		kept   string
	}{
		"the API knows all":                   {"+?-", blockOf("AAA", "me"), "AA., A=me", nil, "++."},
		"the API has lost a taking":           {"++", blockOf("A.", "me"), "AA, A=me", nil, "++"},
		"the API has lost the party":          {"+-", blockOf("..A", "a"), "B.A, A=a, B=me", nil, "+.."},
		"the API has lost a return":           {"+..", blockOf("AAA", "me"), "A.., A=me", nil, "+.."},
		"the API has lost a return of all":    {"..", blockOf("AA", "me"), "..", nil, ".."},
		"another has it":                      {"+-", blockOf("BA", "me", "a"), "B., B=a", []int{0}, ".."},
		"a fenced node has it":                {"+", blockOf("A", "a!"), "B, A=a!, B=me, unproven 0", nil, "?"},
		"never given, and given all the same": {"++", blockOf("-A", "me"), "-A, A=me", nil, ".+"},
	} {
		g := grantOfBlock(test.grant + strings.Repeat(".", len(test.b.Status.Addresses)-len(test.grant)))
		g.Epoch, test.b.Status.Epoch = 20, 15
		before := test.b.clone()
		is, others := g.Assert(test.b, partyOf("me"))
		var offsets []int
		for _, a := range others {
			offsets = append(offsets, test.b.Offset(a))
		}
		if blockText(is) != test.want || !slices.Equal(offsets, test.others) || is.Status.Epoch <= g.Epoch {
			t.Errorf("%s: Assert = %s in epoch %d, %v, want %s after epoch 20, %v", name, blockText(is), is.Status.Epoch, offsets, test.want, test.others)
		}
		checkUnchanged(t, name, before, test.b, is)
		is.Metadata.UID = "uid-2"
		kept, err := g.AdoptAsserted(is, partyOf("me"), nil)
		if err != nil || kept.Addresses != test.kept || kept.Block != "uid-2" || kept.Epoch != is.Status.Epoch {
			t.Errorf("%s: Asserted = %+v, %v, want %s", name, kept, err, test.kept)
		}
	}
}

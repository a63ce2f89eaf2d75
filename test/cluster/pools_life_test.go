package cluster

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/pool"
)

var parties = []pool.Party{node1, node2, node3}

// stepOf draws a step of production that the party can make of the block.
func stepOf(t *rapid.T, b pool.Block, p pool.Party) (name string, do step) {
	all := func(is func(int) bool) (some []int) {
		for i := range len(b.Status.Addresses) {
			if is(i) && rapid.Bool().Draw(t, "this address") {
				some = append(some, i)
			}
		}
		return some
	}
	mine := func(i int) bool { return b.HeldBy(p, i) }
	if h, is := b.Holder(p); is && h.Fenced != "" {
		return "leave", leaves(p)
	}
	to := rapid.SampledFrom(parties).Draw(t, "to")
	switch name = rapid.SampledFrom([]string{"take", "settle", "ask", "ask for an address", "ask no more", "give to", "confirm", "fence", "assert"}).Draw(t, "step"); name {
	case "take":
		return name, takes(p, all(func(i int) bool { return slices.Contains(append(b.FreeOffsets(), b.FencedOffsets()...), i) })...)
	case "settle":
		return name, settles(p, all(mine)...)
	case "ask":
		return name, asks(pool.Want{Party: p, Count: rapid.IntRange(1, 5).Draw(t, "count"), Epoch: rapid.Int64Range(0, 9).Draw(t, "epoch")})
	case "ask for an address":
		return name, asks(pool.Want{Party: p, Address: b.Address(rapid.IntRange(0, 3).Draw(t, "address")), Claim: "c"})
	case "ask no more":
		return name, asks(pool.Want{Party: p})
	case "give to":
		return name, func(b pool.Block) pool.Block { return b.HandOver(p, all(mine), to) }
	case "confirm":
		return name, confirms(p, "boot-2")
	case "fence":
		return name, fenced(to)
	}
	text := []byte("....")
	for _, i := range all(func(i int) bool { h, held := b.HolderOf(i); return !held || h.Fenced == "" }) {
		text[i] = pool.GrantedMark
	}
	return name, asserts(p, string(text))
}

// draws bounds how often the test draws: each draw is some ten requests. A flag on the command line goes first.
func draws(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	if was := checks.String(); was == "100" && os.Getenv("RELINK_LONG") == "" { // rapid's own.
		_ = checks.Set("40") // A number is taken.
		t.Cleanup(func() { _ = checks.Set(was) })
	}
}

// poolLife lets nodes do what production does, in any order. The API takes all of it.
func (a *api) poolLife(t *testing.T, users map[string]user) {
	draws(t)
	index := int64(1000)
	rapid.Check(t, func(t *rapid.T) {
		index++
		var now pool.Block
		by := rapid.SampledFrom(parties).Draw(t, "who makes it")
		users[by.Node].must(t, http.MethodPost, blocks, blockObject(taken(index, by)), &now)
		for range rapid.IntRange(3, 10).Draw(t, "steps") {
			p := rapid.SampledFrom(parties).Draw(t, "who")
			name, do := stepOf(t, now, p)
			next, who := do(now), p.Node
			if name == "fence" {
				who = "controller"
			}
			at := blocks + "/" + now.Metadata.Name
			if name == "settle" && next.Unused() && !now.Unused() {
				users[who].must(t, http.MethodDelete, at, deletion(now.Metadata, false), nil)
				return
			}
			said, answer := users[who].send(t, http.MethodPut, at, blockObject(next))
			if answer.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %s\nof %+v\nto %+v", who, name, said, now.Status, next.Status)
			}
			now = pool.Block{}
			fill(t, said, &now)
			if err := now.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// largest shows that the API can say of the largest block, with the longest names, whether a change of it is allowed.
func (a *api) largest(t *testing.T, users map[string]user) {
	p := pool.Pool{Metadata: pool.Meta{Name: strings.Repeat("p", pool.MaxName)}, Spec: pool.Spec{Subnet: "fd00:ffff:ffff:ffff::/64", BlockSize: 64}}
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	party := func(i int) pool.Party {
		return pool.Party{Node: strings.Repeat("n", 250) + fmt.Sprint(100+i), NodeUID: strings.Repeat("u", 128), Network: strings.Repeat("l", 255), Store: strings.Repeat("s", 61) + fmt.Sprint(100+i)}
	}
	var all []int
	b, _ := pool.NewBlock(l, 1<<19, node1, "boot-1")
	for i := range 64 {
		all = append(all, i)
		b = b.Request(pool.Want{Party: party(i), Count: 1, Epoch: 1 << 60})
	}
	one := func(i int) step {
		return func(b pool.Block) pool.Block { return b.HandOver(node1, []int{i}, party(i)) }
	}
	full := b
	for i := range 63 {
		full = one(i)(full)
	}
	for i := range full.Status.Want {
		full.Status.Want[i].Store = strings.Repeat("w", 61) + fmt.Sprint(100+i)
	}
	empty := leaves(node1)(fenced(node1)(b))
	for _, try := range []struct {
		name   string
		before pool.Block
		by     string
		do     step
		want   string
	}{
		{"gives all of it", b, "node1", settles(node1, all...), ""},
		{"gives it to who has no place", full, "node1", settles(node1, 63), ""},
		{"takes all of it", empty, "node2", takes(node2, all...), ""},
		{"takes what all others have", full, "node1", becomes(strings.Repeat(full.Status.Holders[0].ID, 64)), "which must give it back first"},
		{"changes who wants", full, "node1", edits(func(s *pool.BlockStatus) { s.Want[63].Claim = "c" }), "it may not ask for node nnn"},
	} {
		var now pool.Block
		users["admin"].must(t, http.MethodPost, blocks, blockObject(try.before), &now)
		said, answer := users[try.by].send(t, http.MethodPut, blocks+"/"+now.Metadata.Name, blockObject(try.do(now)))
		check(t, try.name, said, answer, http.StatusForbidden, try.want)
		users["admin"].must(t, http.MethodDelete, blocks+"/"+now.Metadata.Name, m{}, nil)
	}
}

// fault draws a change that no agent makes.
func fault(t *rapid.T, s *pool.BlockStatus) {
	s.Epoch++
	place := func(n int) int { return rapid.IntRange(0, max(0, n-1)).Draw(t, "place") }
	node := func() string { return rapid.SampledFrom(parties).Draw(t, "node").Node }
	id := func() string { return rapid.SampledFrom([]string{"A", "B", "C", "D", ".", "-"}).Draw(t, "character") }
	switch kind := rapid.IntRange(0, 11).Draw(t, "fault"); {
	case kind < 4:
		i := place(len(s.Addresses))
		s.Addresses = s.Addresses[:i] + id() + s.Addresses[i+1:]
	case kind == 4:
		s.Holders = append(s.Holders, pool.Holder{ID: id(), Party: rapid.SampledFrom(parties).Draw(t, "party")})
	case kind == 5:
		s.Unproven = nil
	case kind == 6:
		s.Want = append(s.Want, pool.Want{Party: rapid.SampledFrom(parties).Draw(t, "party"), Count: 1})
	case kind == 7 && len(s.Want) > 0:
		i := place(len(s.Want))
		s.Want = slices.Delete(s.Want, i, i+1)
	case kind == 8 && len(s.Want) > 0:
		s.Want[place(len(s.Want))].Count = rapid.IntRange(0, 6).Draw(t, "count")
	case kind == 9 && len(s.Holders) > 0:
		i := place(len(s.Holders))
		s.Holders = slices.Delete(s.Holders, i, i+1)
	case len(s.Holders) > 0:
		h := &s.Holders[place(len(s.Holders))]
		switch rapid.IntRange(0, 5).Draw(t, "field") {
		case 0:
			h.ID = id()
		case 1:
			h.Node = node()
		case 2:
			h.Store = rapid.SampledFrom([]string{"store-1", "store-2", "store-3", "store-4"}).Draw(t, "store")
		case 3:
			h.Fenced = rapid.SampledFrom([]string{"", "dead"}).Draw(t, "fenced")
		case 4:
			h.Epoch += int64(rapid.IntRange(-1, 1).Draw(t, "epoch"))
		case 5:
			h.Boot = "boot-3"
		}
	}
}

// madeUp lets a node change a block in any way. What the API takes is sound.
func (a *api) madeUp(t *testing.T, users map[string]user) {
	draws(t)
	index, took, refused := int64(9000), 0, 0
	rapid.Check(t, func(t *rapid.T) {
		index++
		before := taken(index, rapid.SampledFrom(parties).Draw(t, "who makes it"))
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			_, do := stepOf(t, before, rapid.SampledFrom(parties).Draw(t, "who"))
			before = do(before)
		}
		var now pool.Block
		users["admin"].must(t, http.MethodPost, blocks, blockObject(before), &now)
		for range 4 {
			p := rapid.SampledFrom(parties).Draw(t, "whose agent is wrong")
			next := now
			if rapid.Bool().Draw(t, "something right, too") {
				_, do := stepOf(t, now, p)
				next = do(now)
			}
			next = edits(func(s *pool.BlockStatus) {
				for range rapid.IntRange(1, 3).Draw(t, "faults") {
					fault(t, s)
				}
			})(next)
			_, answer := users[p.Node].send(t, http.MethodPut, blocks+"/"+now.Metadata.Name+"?dryRun=All", blockObject(next))
			if answer.StatusCode != http.StatusOK {
				refused++
				continue
			}
			took++
			if wrong := unsound(now, next, p.Node); wrong != "" {
				t.Errorf("the API lets %s do this: %s\nof %+v\nto %+v", p.Node, wrong, now.Status, next.Status)
			}
		}
	})
	if few := (took + refused) / 20; took < few || refused < few || few == 0 {
		t.Errorf("the API took %d changes and refused %d: this shows nothing", took, refused)
	}
}

// unsound says what is wrong with a change that the node has made, empty for nothing.
func unsound(was, is pool.Block, node string) string {
	var all []string
	wrong := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	gets := map[string]int{}
	for i := range len(was.Status.Addresses) {
		from, held := was.HolderOf(i)
		to, holds := is.HolderOf(i)
		if held == holds && from.SameParty(to.Party) && from.Node == to.Node || !held && !holds && was.Status.Addresses[i] == is.Status.Addresses[i] {
			continue
		}
		gets[to.Store]++
		own := held && from.Node == node
		switch {
		case was.Status.Addresses[i] == pool.Excluded || is.Status.Addresses[i] == pool.Excluded:
			wrong("%s is given never", was.Address(i))
		case held && !own && from.Fenced == "":
			wrong("%s is of %s", was.Address(i), from.Node)
		case holds && (to.Fenced != "" || to.Node != node && (!own || from.Fenced != "")):
			wrong("%s goes to %s", was.Address(i), to.Node)
		case !holds && held && !own:
			wrong("%s of %s is nobody's", was.Address(i), from.Node)
		case holds && from.Fenced != "" && !slices.Contains(is.Status.Unproven, was.Address(i)):
			wrong("%s of %s is not unproven", was.Address(i), from.Node)
		}
	}
	for _, h := range was.Status.Holders {
		now, stays := is.Holder(h.Party)
		if gets[h.Store] > 0 && now.Epoch > h.Epoch {
			now.Epoch = h.Epoch
		}
		if h.Node != node && !reflect.DeepEqual(now, h) && (stays || h.Fenced != "" || strings.Contains(was.Status.Addresses, h.ID)) {
			wrong("holder %s of %s", h.ID, h.Node)
		}
	}
	for _, h := range is.Status.Holders {
		before, stays := was.Holder(h.Party)
		if before.Fenced != h.Fenced {
			wrong("the fence of %s", h.Node)
		}
		if h.Node != node && !stays && h.Boot != "" {
			wrong("%s says something in its new holder", h.Node)
		}
	}
	wanted := func(b pool.Block, w pool.Want) (n int) {
		for _, o := range b.Status.Want {
			if o.SameParty(w.Party) && o.Address == w.Address {
				n = max(n, o.Count, 1)
			}
		}
		return n
	}
	for _, w := range slices.Concat(was.Status.Want, is.Status.Want) {
		before, now := wanted(was, w), wanted(is, w)
		if h, held := was.Holder(w.Party); w.Node != node && (now > before || before-now > gets[w.Store] && (!held || h.Fenced == "")) {
			wrong("node %s wants %d instead of %d", w.Node, now, before)
		}
	}
	return strings.Join(all, ", ")
}

package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

// cluster is an API that others use at the same time.
type cluster struct {
	*pooltest.API
	// meanwhile happens once to a block, before it is updated for the first time.
	meanwhile map[string]func(*cluster)
	// fails are errors of requests.
	fails map[string]error
}

// beforeRequest is what happens before a request.
func (c *cluster) beforeRequest(request string) error {
	name, _ := strings.CutPrefix(request, "update block ")
	if change := c.meanwhile[name]; change != nil {
		delete(c.meanwhile, name)
		change(c)
	}
	return c.fails[request]
}

// edits makes somebody change a block before it is fenced.
func (c *cluster) edits(name string, change func(pool.Block) pool.Block) {
	c.meanwhile[name] = func(c *cluster) { c.EditBlock(name, func(b *pool.Block) { *b = change(*b) }) }
}

// takes makes the party's block lan-7 before the named one is fenced. boot is in which it says so itself, empty if another node has given it.
func (c *cluster) takes(before string, p pool.Party, boot string) {
	c.meanwhile[before] = func(c *cluster) {
		l, _ := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "p"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}}.Layout()
		b, _ := pool.NewBlock(l, 7, p, boot)
		c.AddBlock(b)
	}
}

func (c *cluster) all(t *testing.T) []pool.Block {
	t.Helper()
	all, err := c.Blocks(t.Context(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func party(node, store string) pool.Party {
	return pool.Party{Node: node, Network: "lan", Store: store}
}

var (
	dead    = party("node3", "old")
	renewed = party("node3", "new")
	other   = party("node1", "one")
)

// newCluster is a cluster with a pool of three blocks: one of the dead node, one of it and another node, one in which it asks.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	l, err := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "p"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{API: &pooltest.API{}, meanwhile: map[string]func(*cluster){}, fails: map[string]error{}}
	c.BeforeRequest = c.beforeRequest
	c.AddNode(pool.Node{Name: "node1"})
	c.AddNode(pool.Node{Name: "node3", Boot: "boot-2"})
	for i, of := range []pool.Party{dead, dead, other} {
		b, _ := pool.NewBlock(l, int64(i), of, "boot-1")
		switch i {
		case 1:
			b = b.HandOver(dead, []int{2, 3}, other)
		case 2:
			b = b.Request(pool.Want{Party: dead, Count: 2})
		}
		c.AddBlock(b)
	}
	return c
}

// resultText is a report in few words.
func resultText(r Result) string {
	var all []string
	for _, p := range r.Parts {
		text := fmt.Sprintf("%s %s %d", p.Block, p.Store, p.Addresses)
		if p.Asks > 0 {
			text += fmt.Sprintf("?%d", p.Asks)
		}
		text += " " + string(p.State)
		if p.Reason != "" {
			text += ": " + p.Reason
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestRun(t *testing.T) {
	all := func(state string) string {
		return strings.ReplaceAll("lan-0 old 4 S, lan-1 old 2 S, lan-2 old 0?2 S", "S", state)
	}
	const left = "left: it was not tried, because the node lives"
	alive := func(what string) string { return "the node lives: " + what + " while this command ran" }
	for name, test := range map[string]struct {
		prepare     func(*cluster)
		want, alive string
		complete    bool
	}{
		"all": {func(*cluster) {}, all("fenced"), "", true},
		"another node changes a block": {func(c *cluster) {
			c.edits("lan-1", func(b pool.Block) pool.Block { return b.Release(other, []int{2}, nil) })
			c.edits("lan-2", func(b pool.Block) pool.Block { return b.Release(other, []int{2}, nil) })
		}, all("fenced"), "", true},
		"the controller is first": {func(c *cluster) {
			c.edits("lan-0", func(b pool.Block) pool.Block { b, _ = b.Fence(dead.SameParty, "taint"); return b })
		}, all("fenced"), "", true},
		"the block that it asked is deleted": {func(c *cluster) {
			c.meanwhile["lan-2"] = func(c *cluster) { c.Forget("lan-2") }
		}, all("fenced"), "", true},
		"it confirms a block after its boot": {func(c *cluster) {
			c.edits("lan-1", func(b pool.Block) pool.Block { b, _ = b.Confirm(dead, "boot-2"); return b })
		}, "lan-0 old 4 fenced, lan-1 old 2 left: " + alive("it has confirmed what it has of AddressBlock lan-1") + ", lan-2 old 0?2 " + left,
			alive("it has confirmed what it has of AddressBlock lan-1"), false},
		"it deletes its block": {func(c *cluster) {
			c.meanwhile["lan-0"] = func(c *cluster) { c.Forget("lan-0") }
		}, "lan-0 old 4 left: " + alive("it has given back all that it had of AddressBlock lan-0") + ", lan-1 old 2 " + left + ", lan-2 old 0?2 " + left,
			alive("it has given back all that it had of AddressBlock lan-0"), false},
		"somebody makes its block anew": {func(c *cluster) {
			c.meanwhile["lan-0"] = func(c *cluster) {
				b := c.all(t)[0]
				c.Forget("lan-0")
				c.AddBlock(b)
			}
		}, "lan-0 old 4 left: " + alive("it has given back all that it had of AddressBlock lan-0") + ", lan-1 old 2 " + left + ", lan-2 old 0?2 " + left,
			alive("it has given back all that it had of AddressBlock lan-0"), false},
		"it asks for more": {func(c *cluster) {
			c.edits("lan-2", func(b pool.Block) pool.Block { return b.Request(pool.Want{Party: dead, Count: 5}) })
		}, "lan-0 old 4 fenced, lan-1 old 2 fenced, lan-2 old 0?2 left: " + alive("it asks for addresses of AddressBlock lan-2"),
			alive("it asks for addresses of AddressBlock lan-2"), false},
		"the API refuses one": {func(c *cluster) { c.fails["update block lan-0"] = pool.ErrRefused },
			"lan-0 old 4 failed: the Kubernetes API refuses, lan-1 old 2 fenced, lan-2 old 0?2 fenced", "", false},
		"a block changes all the time": {func(c *cluster) { c.fails["update block lan-1"] = pool.ErrConflict },
			"lan-0 old 4 fenced, lan-1 old 2 failed: AddressBlock lan-1 changes all the time: try again, lan-2 old 0?2 fenced", "", false},
		"a block is made up": {func(c *cluster) {
			c.EditBlock("lan-0", func(b *pool.Block) { b.Status.Epoch = 0 })
		}, "lan-0 old 4 failed: AddressBlock lan-0 is not as relink writes it: index 0, epoch 0, lan-1 old 2 fenced, lan-2 old 0?2 fenced", "", false},
		"one is fenced before": {func(c *cluster) {
			c.EditBlock("lan-0", func(b *pool.Block) { *b, _ = b.Fence(dead.SameParty, "taint") })
		}, "lan-0 old 4 fenced before: taint, lan-1 old 2 fenced, lan-2 old 0?2 fenced", "", true},
		"its labels are gone": {func(c *cluster) {
			c.EditBlock("lan-0", func(b *pool.Block) { b.Metadata.Labels = nil })
		}, all("fenced"), "", true},
		"it takes a block meanwhile": {func(c *cluster) { c.takes("lan-0", dead, "boot-2") },
			all("fenced") + ", lan-7 old 4 left: " + alive("it has confirmed what it has of AddressBlock lan-7"), alive("it has confirmed what it has of AddressBlock lan-7"), false},
		"it gets some meanwhile": {func(c *cluster) { c.takes("lan-2", dead, "") }, all("fenced") + ", lan-7 old 4 fenced", "", true},
	} {
		c := newCluster(t)
		test.prepare(c)
		plan, err := NewPlan(t.Context(), Target{API: c, Node: "node3", Reason: "by hand: me"})
		if err != nil {
			t.Fatal(err)
		}
		before := resultText(plan.Preview())
		r := plan.Run(t.Context())
		if got := resultText(r); got != test.want || r.Alive != test.alive || r.Complete() != test.complete {
			t.Errorf("%s: %s\nalive %q, complete %t, want\n%s\nalive %q, complete %t", name, got, r.Alive, r.Complete(), test.want, test.alive, test.complete)
		}
		if resultText(plan.Preview()) != before {
			t.Errorf("%s: the run has changed the plan", name)
		}
		for _, b := range c.all(t) {
			h, holds := b.Holder(dead)
			part := r.Parts[slices.IndexFunc(r.Parts, func(p Part) bool { return p.Block == b.Metadata.Name })]
			if done := part.State == Fenced; done && (holds && h.Fenced == "" || len(b.Status.Want) > 0) || !done && h.Fenced == "by hand: me" {
				t.Errorf("%s: %s is said to be %s: %+v", name, b.Metadata.Name, part.State, b.Status)
			}
		}
	}
}

// A node with a new disk has two stores. Only the named one is fenced.
func TestStores(t *testing.T) {
	c := newCluster(t)
	c.EditBlock("lan-1", func(b *pool.Block) { *b, _ = b.HandOver(other, []int{2}, renewed).Confirm(renewed, "boot-2") })
	plan, err := NewPlan(t.Context(), Target{API: c, Node: "node3", Stores: []string{"old"}, Reason: "new disk"})
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Run(t.Context())
	if want := "lan-0 old 4 fenced, lan-1 old 2 fenced, lan-2 old 0?2 fenced"; resultText(r) != want || !slices.Equal(r.Spared, []string{"new"}) || !r.Complete() {
		t.Errorf("%s, spared %v, want %s, spared new", resultText(r), r.Spared, want)
	}
	if now := c.all(t)[1]; !now.HeldBy(renewed, 2) || now.HeldBy(dead, 0) {
		t.Errorf("the block is %+v", now.Status)
	}
	plan, err = NewPlan(t.Context(), Target{API: c, Node: "node3"})
	if want := "lan-0 old 4 fenced before: new disk, lan-1 old 2 fenced before: new disk, lan-1 new 1 to fence"; err != nil || resultText(plan.Preview()) != want {
		t.Errorf("afterwards: %s, %v, want %s", resultText(plan.Preview()), err, want)
	}
	for _, p := range plan.Preview().Parts {
		if p.ThisBoot != (p.Store == "new") {
			t.Errorf("store %s is in use: %t", p.Store, p.ThisBoot)
		}
	}
}

func TestLook(t *testing.T) {
	const nobody = `"node9" matches nothing: no AddressBlock has anything of a node of that name, and no Node object is seen`
	for name, test := range map[string]struct {
		prepare func(*cluster)
		node    string
		stores  []string
		object  NodeObject
		why     string
		parts   int
		err     string
	}{
		"not ready":            {func(*cluster) {}, "node3", nil, NotReady, "", 3, ""},
		"ready":                {func(c *cluster) { c.AddNode(pool.Node{Name: "node3", Ready: true}) }, "node3", nil, Ready, "", 3, ""},
		"the object is gone":   {func(c *cluster) { c.fails["get node node3"] = pool.ErrNotFound }, "node3", nil, Gone, "", 3, ""},
		"no right to see it":   {func(c *cluster) { c.fails["get node node3"] = pool.ErrRefused }, "node3", nil, Unknown, "the Kubernetes API refuses", 3, ""},
		"a node without pools": {func(c *cluster) { c.AddNode(pool.Node{Name: "node9", Ready: true}) }, "node9", nil, Ready, "", 0, ""},
		"no such node":         {func(*cluster) {}, "node9", nil, Gone, "", 0, nobody},
		"no such node is seen": {func(c *cluster) { c.fails["get node node9"] = pool.ErrRefused }, "node9", nil, Unknown, "the Kubernetes API refuses", 0, nobody},
		"no such store":        {func(*cluster) {}, "node3", []string{"old", "x"}, NotReady, "", 3, "--store x matches nothing: the stores of node3 are old"},
		"another node's store": {func(*cluster) {}, "node3", []string{"one"}, NotReady, "", 3, "--store one matches nothing: the stores of node3 are old"},
		"a store of no pools":  {func(c *cluster) { c.AddNode(pool.Node{Name: "node9"}) }, "node9", []string{"old"}, NotReady, "", 0, "--store old matches nothing: the stores of node9 are none"},
	} {
		c := newCluster(t)
		test.prepare(c)
		plan, err := NewPlan(t.Context(), Target{API: c, Node: test.node, Stores: test.stores})
		r := plan.Preview()
		if r.Object != test.object || r.ObjectReason != test.why || len(r.Parts) != test.parts || (err != nil) != (test.err != "") {
			t.Errorf("%s: the object is %s (%s), %s, %v", name, r.Object, r.ObjectReason, resultText(r), err)
		}
		if err != nil && (err.Error() != test.err || !errors.Is(err, ErrNoMatch)) {
			t.Errorf("%s: %v, want %s", name, err, test.err)
		}
		if all := c.Requests(); slices.ContainsFunc(all, func(r string) bool { return strings.HasPrefix(r, "update") }) {
			t.Errorf("%s: Look asks for %q", name, all)
		}
	}
}

package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// attempt is what a node does with a block.
type attempt struct {
	name string
	// before is made of a block that node1 has just taken.
	before step
	by     string
	// do is the change, nil to delete the block.
	do   step
	want string
}

type step func(pool.Block) pool.Block

// The steps of production.

func gives(p pool.Party, offsets ...int) step {
	return func(b pool.Block) pool.Block { return b.Release(p, offsets, nil) }
}

func takes(p pool.Party, offsets ...int) step {
	return func(b pool.Block) pool.Block { b, _ = b.Take(p, offsets); return b }
}

func asks(w pool.Want) step { return func(b pool.Block) pool.Block { return b.Request(w) } }

func leaves(p pool.Party) step { return func(b pool.Block) pool.Block { return b.Unfence(p, nil) } }

// fenced is what the controller does.
func fenced(p pool.Party) step {
	return func(b pool.Block) pool.Block {
		b, _ = b.Fence(p.SameParty, "node has the taint out-of-service")
		return b
	}
}

// settles is what an agent makes of a block whose addresses it has marked.
func settles(p pool.Party, offsets ...int) step {
	return func(b pool.Block) pool.Block {
		g, _, err := pool.Grant{}.Adopt(b, p)
		if err != nil {
			panic(err)
		}
		return b.Release(p, g.Mark(offsets).Offsets(string(pool.Marked)), nil)
	}
}

// asserts is what an agent makes of a block of which it has the addresses, as the API has lost it.
func asserts(p pool.Party, addresses string) step {
	return func(b pool.Block) pool.Block {
		g := pool.Grant{Pool: b.Spec.Pool, Index: b.Spec.Index, First: b.Spec.First, Epoch: 900, Addresses: addresses}
		b, _ = g.Assert(b, p)
		return b
	}
}

func confirms(p pool.Party, boot string) step {
	return func(b pool.Block) pool.Block { b, _ = b.Confirm(p, boot); return b }
}

func then(steps ...step) step {
	return func(b pool.Block) pool.Block {
		for _, s := range steps {
			b = s(b)
		}
		return b
	}
}

// edits is what no agent does. The change is one of an owner, so that the API has nothing else against it.
func edits(change func(*pool.BlockStatus)) step {
	return func(b pool.Block) pool.Block {
		b.Status.Holders, b.Status.Want, b.Status.Unproven = slices.Clone(b.Status.Holders), slices.Clone(b.Status.Want), slices.Clone(b.Status.Unproven)
		b.Status.Epoch++
		change(&b.Status)
		return b
	}
}

// becomes replaces the characters.
func becomes(addresses string) step {
	return edits(func(s *pool.BlockStatus) { s.Addresses = addresses })
}

func whole(b pool.Block) pool.Block { return b }

// doubtsFirst says of the first address alone that a fenced holder had it.
func doubtsFirst(b pool.Block) pool.Block {
	b.Status.Unproven = []netip.Addr{b.Spec.First}
	return b
}

// shared is a block of which node1 has two addresses, node2 one, and nobody one: AAB.
var shared = then(asks(pool.Want{Party: node2, Count: 1}), gives(node1, 2), gives(node1, 3))

// dead2 is shared, and node2 is fenced.
var dead2 = then(shared, fenced(node2))

// kept is shared after node2 was deleted: an owner has its address.
func kept(b pool.Block) pool.Block {
	b, _ = dead2(b).RemoveDeleted(func(h pool.Holder) bool { return h.SameParty(node2) }, func(netip.Addr) bool { return true })
	return b
}

// six is the same block of IPv6.
func six(index int64) step {
	return func(pool.Block) pool.Block {
		p := pool.Pool{Metadata: pool.Meta{Name: "six"}, Spec: pool.Spec{Subnet: "fd00:3::/64", BlockSize: 4}}
		l, err := p.Layout()
		if err != nil {
			panic(err)
		}
		b, _ := pool.NewBlock(l, index, node1, "boot-1")
		return dead2(b)
	}
}

func allowed() []attempt {
	other := node1
	other.Network, other.Store = "wan", "store-1-wan"
	sticky := pool.Want{Party: node2, Address: netip.MustParseAddr("10.3.0.22"), Claim: "lan-0123"}
	return []attempt{
		{name: "gives back", before: whole, by: "node1", do: settles(node1, 1, 2)},
		{name: "gives to who asks", before: asks(pool.Want{Party: node2, Count: 2}), by: "node1", do: settles(node1, 1, 2, 3)},
		{name: "gives a part of what is asked for", before: asks(pool.Want{Party: node2, Count: 3}), by: "node1", do: settles(node1, 1)},
		{name: "gives one to each", before: then(asks(pool.Want{Party: node2, Count: 1}), asks(pool.Want{Party: node3, Count: 1})), by: "node1", do: settles(node1, 0, 1, 2, 3)},
		{name: "gives a holder more", before: then(shared, asks(pool.Want{Party: node2, Count: 1})), by: "node1", do: settles(node1, 1)},
		{name: "takes what an owner has", before: kept, by: "node1", do: takes(node1, 2)},
		{name: "has probed for what was unproven", before: then(kept, takes(node1, 2)), by: "node1", do: func(b pool.Block) pool.Block {
			proven := b.Address(2)
			b.Status.Unproven = slices.DeleteFunc(slices.Clone(b.Status.Unproven), func(a netip.Addr) bool { return a == proven })
			return b
		}},
		{name: "gives nothing to a fenced node that asks", before: then(dead2, asks(pool.Want{Party: node2, Count: 2})), by: "node1", do: settles(node1, 0, 1)},
		{name: "gives the address of an owner", before: asks(sticky), by: "node1", do: settles(node1, 1)},
		{name: "gives another address than that of the owner", before: asks(sticky), by: "node1", do: settles(node1, 2)},
		{name: "gives the only address that is asked for, with a count", before: func(b pool.Block) pool.Block {
			return b.Request(pool.Want{Party: node2, Address: b.Address(1), Claim: "c", Count: 3})
		}, by: "node1", do: settles(node1, 1, 2, 3)},
		{name: "gives to who has asked, beside another node with its store", before: then(shared, gives(node2, 2), takes(impostor, 2), asks(pool.Want{Party: node3, Count: 1})), by: "node1", do: settles(node1, 0)},
		{name: "takes beside another node with its store", before: then(shared, gives(node2, 2), takes(impostor, 2)), by: "node3", do: takes(node3, 3)},
		{name: "gives to who has asked elsewhere", before: shared, by: "node1", do: func(b pool.Block) pool.Block { return b.HandOver(node1, []int{0, 1}, node3) }},
		{name: "gives to another network of the node", before: shared, by: "node1", do: func(b pool.Block) pool.Block { return b.HandOver(node1, []int{0}, other) }},
		{name: "leaves it to an owner", before: shared, by: "node1", do: becomes("=AB.")},
		{name: "gives back and asks for another", before: then(shared, asks(pool.Want{Party: node3, Count: 1})), by: "node1", do: then(settles(node1, 0), asks(pool.Want{Party: node1, Count: 2}))},
		{name: "takes what is nobody's", before: then(shared, gives(node2, 2)), by: "node2", do: takes(node2, 2, 3)},
		{name: "takes what a fenced node had", before: dead2, by: "node1", do: takes(node1, 2)},
		{name: "takes it although it had nothing", before: dead2, by: "node3", do: takes(node3, 2, 3)},
		{name: "takes what a fenced node had in IPv6", before: six(0), by: "node1", do: takes(node1, 2)},
		{name: "takes what two fenced nodes had", before: then(dead2, takes(node3, 2), fenced(node3)), by: "node1", do: takes(node1, 2)},
		{name: "takes what its old disk had", before: then(shared, fenced(node1)), by: "node1", do: takes(other, 0, 1)},
		{name: "asks", before: shared, by: "node3", do: asks(pool.Want{Party: node3, Count: 7})},
		{name: "asks for less", before: then(shared, asks(pool.Want{Party: node3, Count: 7})), by: "node3", do: asks(pool.Want{Party: node3, Count: 1})},
		{name: "asks for an address", before: then(shared, asks(pool.Want{Party: node3, Count: 7})), by: "node2", do: asks(sticky)},
		{name: "asks no more", before: then(shared, asks(sticky)), by: "node2", do: asks(pool.Want{Party: node2, Address: sticky.Address})},
		{name: "says that it still has it", before: shared, by: "node2", do: confirms(node2, "boot-2")},
		{name: "says that its Node was made anew", before: shared, by: "node2", do: confirms(anew, "boot-1")},
		{name: "takes, and says the boot", before: dead2, by: "node3", do: then(takes(node3, 2), confirms(node3, "boot-2"))},
		{name: "leaves what it has lost", before: then(dead2, takes(node3, 2)), by: "node2", do: leaves(node2)},
		{name: "leaves what nobody has taken", before: dead2, by: "node2", do: leaves(node2)},
		{name: "leaves before another fenced one", before: then(dead2, fenced(node1), takes(node3, 0, 2)), by: "node2", do: leaves(node2)},
		{name: "asserts what it has", before: shared, by: "node2", do: asserts(node2, "..++")},
		{name: "asserts that it has nothing more", before: shared, by: "node1", do: asserts(node1, "-...")},
		{name: "deletes what it has alone", before: gives(node1, 1), by: "node1"},
		{name: "deletes what it has never used", before: becomes("-..-"), by: "node1"},
		{name: "deletes what nobody has", before: then(fenced(node1), leaves(node1)), by: "node3"},
		{name: "deletes where an address is wanted that it does not have", before: then(gives(node1, 1), asks(sticky)), by: "node1"},
	}
}

func forbidden() []attempt {
	holder := func(p pool.Party, id string) pool.Holder { return pool.Holder{ID: id, Party: p, Epoch: 9} }
	loses := func(i int, more ...pool.Holder) step {
		return edits(func(s *pool.BlockStatus) { s.Holders = append(slices.Delete(s.Holders, i, i+1), more...) })
	}
	second := func(change func(*pool.Holder)) step {
		return edits(func(s *pool.BlockStatus) { change(&s.Holders[1]) })
	}
	const stays = `the holder B is of node node2, and stays as it is`
	const fences = `the controller and people fence the holder B, and end that; a node that was fenced only leaves`
	wanted := then(shared, asks(pool.Want{Party: node3, Count: 3}))
	return []attempt{
		// Addresses.
		{"takes another's address", shared, "node1", becomes("AAA."), "node node1 may not change AddressBlock NAME: the address 10.3.X.Y+2 is that of node node2, which must give it back first"},
		{"drops another's address", shared, "node1", becomes("AA.."), "the address 10.3.X.Y+2 is that of node node2, which must give it back first"},
		{"takes all that is another's", shared, "node1", then(becomes("AAA."), loses(1)), "the address 10.3.X.Y+2 is that of node node2, which must give it back first"},
		{"gives away another's address", shared, "node3", then(becomes("AAA.")), "is that of node node2, which must give it back first"},
		{"gives another what is nobody's", shared, "node1", becomes("AABB"), "the address 10.3.X.Y+3 is nobody's, and a node takes it for a store of its own only"},
		{"brings back what is never given", becomes("AA-A"), "node1", becomes("AAAA"), "the address 10.3.X.Y+2 is given never, or is not, and this stays so"},
		{"withdraws an address", shared, "node1", becomes("A-B."), "the address 10.3.X.Y+1 is given never, or is not, and this stays so"},
		{"gives to a fenced holder", dead2, "node1", becomes("ABB."), "the address 10.3.X.Y+1 goes to nobody, or to a holder that is not fenced"},
		{"gives another what a fenced one had", then(dead2, fenced(node1)), "node3", edits(func(s *pool.BlockStatus) {
			s.Holders, s.Addresses = append(s.Holders, holder(pool.Party{Node: "node4", Network: "lan", Store: "store-4"}, "C")), "AAC."
		}), "the address 10.3.X.Y+2 was that of a fenced holder, and a node takes it for a store of its own only"},
		{"says that another node has probed", then(kept, takes(node1, 2)), "node3", edits(func(s *pool.BlockStatus) { s.Unproven = nil }), "addresses stay in unproven until the last fenced holder has left"},
		{"takes what an owner has, without a note", kept, "node1", then(takes(node1, 2), edits(func(s *pool.BlockStatus) { s.Unproven = nil })), "addresses stay in unproven until the last fenced holder has left"},
		{"frees what an owner has", kept, "node1", becomes("AA.."), "the address 10.3.X.Y+2 is nobody's, and a node takes it for a store of its own only"},
		{"frees what a fenced one had", dead2, "node1", becomes("AA.."), "the address 10.3.X.Y+2 was that of a fenced holder, and a node takes it for a store of its own only"},
		{"takes back what it has lost", dead2, "node2", becomes("AABB"), "the address 10.3.X.Y+3 is nobody's, and a node takes it for a store of its own only"},
		{"gives what it has lost", dead2, "node2", becomes("AAA."), "the address 10.3.X.Y+2 was that of a fenced holder, and a node takes it for a store of its own only"},
		{"takes what a fenced one had without a note", dead2, "node1", then(takes(node1, 2), edits(func(s *pool.BlockStatus) { s.Unproven = nil })), "the address 10.3.X.Y+2 was that of a fenced holder, and must be in unproven"},
		{"takes what a fenced one had in IPv6 without a note", six(1), "node1", then(takes(node1, 2), edits(func(s *pool.BlockStatus) { s.Unproven = nil })), "the address fd00:3::5 + 2 was that of a fenced holder, and must be in unproven"},
		{"notes another address", dead2, "node1", then(takes(node1, 2), doubtsFirst), "the address 10.3.X.Y+2 was that of a fenced holder, and must be in unproven"},
		{"doubts an address of another node", shared, "node3", doubtsFirst, "from a fenced holder, and puts it into unproven"},
		{"doubts an address of IPv6", six(2), "node1", doubtsFirst, "from a fenced holder, and puts it into unproven"},
		{"forgets what is unproven", then(dead2, takes(node1, 2)), "node1", edits(func(s *pool.BlockStatus) { s.Unproven = nil }), "addresses stay in unproven until the last fenced holder has left"},
		{"leaves and forgets what is unproven", then(dead2, takes(node3, 2), fenced(node1)), "node2", then(leaves(node2), edits(func(s *pool.BlockStatus) { s.Unproven = nil })), "addresses stay in unproven until the last fenced holder has left"},

		// Holders.
		{"gives without an epoch", then(shared, asks(pool.Want{Party: node2, Count: 1})), "node1", then(settles(node1, 1), second(func(h *pool.Holder) { h.Epoch = 1 })), stays},
		{"gives with an epoch to come", then(shared, asks(pool.Want{Party: node2, Count: 1})), "node1", then(settles(node1, 1), second(func(h *pool.Holder) { h.Epoch = 1 << 60 })), stays},
		{"gives a new holder an epoch to come", asks(pool.Want{Party: node2, Count: 1}), "node1", then(settles(node1, 1), second(func(h *pool.Holder) { h.Epoch = 1 << 60 })), "the new holder B of node node2 gets a later epoch than the block has"},
		{"takes an id with all its addresses", shared, "node1", loses(1, holder(pool.Party{Node: "node1", Network: "lan", Store: "other"}, "B")), "the id B is of node node2 and store store-2, and stays so as long as addresses have it"},
		{"puts its name on another's holder", shared, "node1", second(func(h *pool.Holder) { h.Node = "node1" }), "the id B is of node node2 and store store-2, and stays so as long as addresses have it"},
		{"puts another's name on its own", shared, "node2", second(func(h *pool.Holder) { h.Node = "node1" }), "the id B is of node node2 and store store-2, and stays so as long as addresses have it"},
		{"changes the node's UID", shared, "node1", second(func(h *pool.Holder) { h.NodeUID = "other" }), stays},
		{"changes the network", shared, "node1", second(func(h *pool.Holder) { h.Network = "wan" }), stays},
		{"changes the boot", shared, "node1", second(func(h *pool.Holder) { h.Boot = "boot-2" }), stays},
		{"accepts a pod for another node", shared, "node3", second(func(h *pool.Holder) { h.Accepted = []string{"uid-of-a-pod"} }), stays},
		{"gives, and says the boot for who gets it", asks(pool.Want{Party: node2, Count: 1}), "node1", then(gives(node1, 3), confirms(node2, "boot-2")), "the new holder B of node node2 says its boot only itself"},
		{"changes the epoch", shared, "node1", second(func(h *pool.Holder) { h.Epoch++ }), stays},
		{"lowers the epoch of who gets an address", shared, "node1", then(becomes("ABB."), second(func(h *pool.Holder) { h.Epoch-- })), stays},
		{"changes a holder that has nothing", edits(func(s *pool.BlockStatus) { s.Holders = append(s.Holders, holder(node2, "B")) }), "node1", second(func(h *pool.Holder) { h.Network = "wan" }), stays},
		{"fences another", shared, "node1", second(func(h *pool.Holder) { h.Fenced = "dead" }), fences},
		{"ends another's fence", dead2, "node1", second(func(h *pool.Holder) { h.Fenced = "" }), fences},
		{"removes a fenced holder", then(dead2, takes(node3, 2)), "node1", loses(1), stays},
		{"gives a fenced holder another id", then(dead2, takes(node3, 2)), "node1", second(func(h *pool.Holder) { h.ID = "Z" }), stays},
		{"fences itself", shared, "node2", second(func(h *pool.Holder) { h.Fenced = "dead" }), fences},
		{"ends its own fence", dead2, "node2", second(func(h *pool.Holder) { h.Fenced = "" }), fences},
		{"changes why it is fenced", dead2, "node2", second(func(h *pool.Holder) { h.Fenced = "alive" }), fences},
		{"comes fenced", shared, "node3", edits(func(s *pool.BlockStatus) {
			s.Holders = append(s.Holders, pool.Holder{ID: "C", Party: node3, Fenced: "dead"})
		}), "the controller and people fence the holder C"},
		{"adds a holder of another node", shared, "node1", edits(func(s *pool.BlockStatus) { s.Holders = append(s.Holders, holder(node3, "C")) }), "the new holder C of node node3 gets no address from this node"},

		// Wants.
		{"asks for half a block, and more", shared, "node1", edits(func(s *pool.BlockStatus) {
			s.Want = slices.Repeat([]pool.Want{{Party: node1, Count: 1}}, 33)
		}), "it asks 33 times, and each node at most 32 times"},
		{"asks for another", shared, "node1", asks(pool.Want{Party: node3, Count: 1}), "it may not ask for node node3"},
		{"asks for more for another", wanted, "node1", asks(pool.Want{Party: node3, Count: 4}), "it may not ask for node node3"},
		{"asks anew for another", wanted, "node1", edits(func(s *pool.BlockStatus) { s.Want[0].Epoch = 7 }), "it may not ask for node node3"},
		{"changes who asks", wanted, "node1", edits(func(s *pool.BlockStatus) { s.Want[0].Network = "wan" }), "it may not ask for node node3"},
		{"drops what another asks for", wanted, "node1", edits(func(s *pool.BlockStatus) { s.Want = nil }), "node node3 still wants what it has not got"},
		{"lowers what another asks for", wanted, "node1", edits(func(s *pool.BlockStatus) { s.Want[0].Count-- }), "node node3 still wants what it has not got"},
		{"gives less than it strikes off", wanted, "node1", then(settles(node1, 0), edits(func(s *pool.BlockStatus) { s.Want[0].Count-- })), "node node3 still wants what it has not got"},
		{"strikes off another with its store", then(wanted, gives(node2, 2)), "node1", then(func(b pool.Block) pool.Block { return b.HandOver(node1, []int{0, 1}, impostor) }, edits(func(s *pool.BlockStatus) { s.Want = nil })), "node node3 still wants what it has not got"},
		{"gives to another than who asks", wanted, "node1", then(func(b pool.Block) pool.Block { return b.HandOver(node1, []int{0, 1}, node2) }, edits(func(s *pool.BlockStatus) { s.Want = nil })), "node node3 still wants what it has not got"},
		{"drops an address that another asks for", then(shared, asks(pool.Want{Party: node3, Address: netip.MustParseAddr("10.3.0.22"), Claim: "c"})), "node1", edits(func(s *pool.BlockStatus) { s.Want = nil }), "node node3 still wants what it has not got"},

		// The rest.
		{"lets a person delete it", shared, "node3", func(b pool.Block) pool.Block {
			b.Metadata.Annotations = map[string]string{"ipam.relink.dev/delete": b.Metadata.Name}
			return b
		}, "metadata.annotations stay as they are"},
		{"ends all epochs", shared, "node1", edits(func(s *pool.BlockStatus) { s.Epoch = 1 << 61 }), "status.epoch grows by 1000000000 at most"},
		{"deletes what another has", shared, "node1", nil, "node node1 may not delete AddressBlock NAME: node node2 has addresses of it"},
		{"deletes what a fenced one had", then(dead2, takes(node1, 2)), "node1", nil, "node node2 has addresses of it"},
		{"deletes what another wants", then(gives(node1, 1), asks(pool.Want{Party: node3, Count: 1})), "node1", nil, "node node3 wants addresses of it"},
	}
}

// blockPolicy tries what agents do, and what they never do.
func (a *api) blockPolicy(t *testing.T, users map[string]user) {
	for i, try := range slices.Concat(allowed(), forbidden()) {
		var now pool.Block
		users["admin"].must(t, http.MethodPost, blocks, blockObject(try.before(taken(int64(100+i), node1))), &now)
		want := ofBlock(try.want, now)
		for n := range 4 {
			want = strings.ReplaceAll(want, fmt.Sprintf("10.3.X.Y+%d", n), now.Address(n).String())
		}
		for _, who := range []string{try.by + "'s unit", try.by} {
			dry := who != try.by
			method, object, query := http.MethodDelete, deletion(now.Metadata, dry), ""
			if try.do != nil {
				method, object = http.MethodPut, blockObject(try.do(now))
			}
			if dry && try.do != nil {
				query = "?dryRun=All"
			}
			said, answer := users[who].send(t, method, blocks+"/"+now.Metadata.Name+query, object)
			check(t, who+" "+try.name, said, answer, http.StatusForbidden, want)
		}
	}
}

// ofBlock replaces NAME by the name of the block.
func ofBlock(text string, b pool.Block) string {
	return strings.ReplaceAll(text, "NAME", b.Metadata.Name)
}

// deletion is what the API is told to delete an object that is still as it was read. If it is dry, nothing is done.
func deletion(of pool.Meta, dry bool) m {
	o := m{"preconditions": m{"uid": of.UID, "resourceVersion": of.ResourceVersion}}
	if dry {
		o["dryRun"] = []string{"All"}
	}
	return o
}

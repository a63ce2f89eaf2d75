package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// tryFrom returns what an ADD gives from its pools, such as "10.3.0.2/24" or, if it must be probed for, "10.3.0.2/24?".
func (n *node) tryFrom(t *testing.T, r Request) (string, error) {
	t.Helper()
	s := n.store(t)
	given, err := s.Allocate(t.Context(), r)
	if err != nil {
		if len(given) > 0 || s.PoolAddresses() != nil {
			t.Errorf("%v, and it has given %v %v", err, given, s.PoolAddresses())
		}
		return "", err
	}
	var all []string
	for i, l := range given {
		from := s.PoolAddresses()[i]
		text := netip.PrefixFrom(l.Address, from.Layout.Subnet.Bits()).String()
		if from.Probe {
			text += "?"
		}
		if from.Layout.Name != r.Pools[i] {
			t.Errorf("%s is said to be from %q", text, from.Layout.Name)
		}
		all = append(all, text)
	}
	return strings.Join(all, " "), nil
}

// An ADD gives only what the node has. What it is asked for and has not got can be on another node.
func TestAllocateFromPools(t *testing.T) {
	const none = "pool lan of network pods: no address is free: no address of it is granted to this node"
	for name, test := range map[string]struct {
		// blocks are the node's part of lan, and taken its addresses that are held by somebody else.
		blocks []string
		taken  string
		change func(*Request)
		is     error
		want   string
	}{
		"the first":                 {[]string{"..++"}, "", nil, nil, "10.3.0.2/24"},
		"the gateway is granted":    {[]string{"++++"}, "", nil, nil, "10.3.0.0/24"},
		"after the gateway":         {[]string{".+++"}, "", nil, nil, "10.3.0.2/24"},
		"excluded by now":           {[]string{"....", "..++"}, "", nil, nil, "10.3.0.7/24"},
		"of the second block":       {[]string{"..+.", "++.."}, "10.3.0.2", nil, nil, "10.3.0.4/24"},
		"marked ones are not given": {[]string{"..--", "-.-+"}, "", nil, nil, "10.3.0.7/24"},
		"sure ones go first":        {[]string{"..??", "++.."}, "", nil, nil, "10.3.0.4/24"},
		"then those to probe":       {[]string{"..?.", "+..."}, "10.3.0.4", nil, nil, "10.3.0.2/24?"},
		"nobody probes": {[]string{"..??", "+..."}, "10.3.0.4", func(r *Request) { r.Probes = false }, ErrExhausted,
			"pool lan of network pods: no address is free of the 3 that this node has: 1 held, 0 reserved, 0 in quarantine; relink ipam list says for whom"},
		"nobody probes, and all are doubtful": {[]string{"..??"}, "", func(r *Request) { r.Probes = false }, ErrExhausted,
			"pool lan of network pods: no address is free: this node has 2 that must be probed for, which relink-ipam cannot do as a program of its own"},
		"nothing granted": {[]string{"...."}, "", nil, ErrExhausted, none},
		"only marked":     {[]string{"-.-."}, "", nil, ErrExhausted, none},
		"all are held": {[]string{"..+."}, "10.3.0.2", nil, ErrExhausted,
			"pool lan of network pods: no address is free of the 1 that this node has: 1 held, 0 reserved, 0 in quarantine; relink ipam list says for whom"},
		"an unknown pool": {[]string{"..++"}, "", func(r *Request) { r.Pools = []string{"lan", "other"} }, ErrExhausted,
			"pool other of network pods: no address is free: no address of it is granted to this node"},
		"asked for":                 {[]string{"..++"}, "", requesting("10.3.0.3"), nil, "10.3.0.3/24"},
		"asked for, to probe":       {[]string{"..+?"}, "", requesting("10.3.0.3"), nil, "10.3.0.3/24?"},
		"asked for, taken":          {[]string{"..++"}, "10.3.0.3", requesting("10.3.0.3"), ErrTaken, "each of the requested addresses is not available: 10.3.0.3 is held by eth0 of other0 on pods"},
		"asked for, elsewhere":      {[]string{"..++"}, "", requesting("10.3.0.9"), nil, "!this node has none of [10.3.0.9] of pool lan"},
		"asked for, marked":         {[]string{"..+-"}, "", requesting("10.3.0.3"), nil, "!this node has none of [10.3.0.3] of pool lan"},
		"asked for, the agent, too": {[]string{"..++"}, "", sought("10.3.0.9"), ErrTaken, "each of the requested addresses is not available: 10.3.0.9 of pool lan is not granted to this node"},
		"asked for, the gateway":    {[]string{"..++"}, "", requesting("10.3.0.1"), nil, "10.3.0.1 cannot be given: it is the gateway"},
		"asked for, excluded":       {[]string{"..++"}, "", requesting("10.3.0.6"), nil, "10.3.0.6 cannot be given: it is in exclude 10.3.0.6"},
		"asked for, in no pool":     {[]string{"..++"}, "", requesting("10.3.0.77"), nil, "10.3.0.77 is in none of the range sets"},
		"one of two":                {[]string{"...+"}, "", choosingFrom("10.3.0.9", "10.3.0.3"), nil, "10.3.0.3/24"},
		"one of two, elsewhere":     {[]string{"...+"}, "10.3.0.3", choosingFrom("10.3.0.9", "10.3.0.3"), nil, "!this node has none of [10.3.0.9] of pool lan"},
		"one of two, none": {[]string{"..+."}, "", func(r *Request) { choosingFrom("10.3.0.9", "10.3.0.3")(r); r.QueriedAddresses = r.CandidateAddresses }, ErrTaken,
			"each of the requested addresses is not available: 10.3.0.9 of pool lan is not granted to this node; 10.3.0.3 of pool lan is not granted to this node"},
		"one of two, in no pool": {[]string{"..+."}, "", choosingFrom("10.3.0.77"), nil, "10.3.0.77 is in none of the range sets"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			n.grant(t, lan, test.blocks...)
			for i, a := range strings.Fields(test.taken) {
				n.giveFrom(t, fmt.Sprintf("other%d/eth0", i), "", a)
			}
			r := n.fromPools("c1/eth0", "web-0", "lan")
			if test.change != nil {
				test.change(&r)
			}
			got, err := n.tryFrom(t, r)
			var elsewhere *ElsewhereError
			var refused *RefusedError
			switch {
			case errors.As(err, &elsewhere):
				got = "!" + err.Error()
			case err != nil && (test.is != nil && !errors.Is(err, test.is) || test.is == nil && !errors.As(err, &refused)):
				t.Errorf("%v, want %v", err, test.is)
			case err != nil:
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
			n.expectVerified(t)
		})
	}
}

func sought(a string) func(*Request) {
	return func(r *Request) {
		r.RequestedAddresses, r.QueriedAddresses = []netip.Addr{addr(a)}, []netip.Addr{addr(a)}
	}
}

// A pod can get an address of each of several pools: both or none.
func TestAllocateFromTwoPools(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "..+.")
	r := n.fromPools("c1/eth0", "", "lan", "lan6")
	_, err := n.tryFrom(t, r)
	n.refused(t, "one is empty", err, ErrExhausted, "pool lan6 of network pods: no address is free: no address of it is granted to this node")
	n.expect(t, "nothing is given")
	n.grant(t, lan6, "?+......")
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.2/24 fd00:3::11/64" {
		t.Errorf("%s %v", got, err)
	}
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.2/24 fd00:3::11/64" {
		t.Errorf("a repeated ADD: %s %v", got, err)
	}
	names := n.granted(t).Pools
	if names[0].Name != "lan" || names[1].Name != "lan6" || !names[1].Named {
		t.Errorf("the ADD names %+v", names)
	}
}

// What a pod has it keeps, whatever becomes of the node's grants.
func TestARepeatedADDKeepsALostAddress(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *node) error{
		"lost": func(t *testing.T, n *node) error {
			return n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "...+")})
		},
		"marked": func(t *testing.T, n *node) error {
			return n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "..-+")})
		},
		"another pool": func(t *testing.T, n *node) error {
			other := lan
			other.Ranges = []pool.Span{{First: addr("10.3.0.100"), Last: addr("10.3.0.107")}}
			return n.store(t).PutGrants(t.Context(), other, nil)
		},
		"unconfirmed": func(t *testing.T, n *node) error {
			return n.store(t).change(t.Context(), func(l *leaseTx) error { return l.meta.Delete([]byte(keyConfirmed)) })
		},
	} {
		n := newNode(t, "10.3.0.20", sticky)
		n.grant(t, lan, "..++")
		r := n.fromPools("c1/eth0", "web-0", "lan")
		r.QueriedPools = r.Pools
		for range 2 {
			if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.2/24" {
				t.Errorf("%s: %s %v", name, got, err)
			}
			must(t, lose(t, n))
		}
		n.del(t, "c1/eth0")
		r.Attachment = n.key("c2/eth0")
		if got, err := n.tryFrom(t, r); err == nil && got == "10.3.0.2/24" && name != "another pool" {
			t.Errorf("%s: the next pod gets it, too", name)
		}
	}
}

// An owner that keeps its address gets no other one before the agent was asked: it may have one on another node. With the address
// here nobody needs to be asked.
func TestAKeptAddressCanBeElsewhere(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++", "++.+")
	r := n.fromPools("c1/eth0", "web-0", "lan")
	elsewhere := func(when string) {
		t.Helper()
		_, err := n.tryFrom(t, r)
		var e *ElsewhereError
		if !errors.As(err, &e) || e.Pool != "lan" || e.Addresses != nil || err.Error() != "another node may have the owner's address of pool lan" {
			t.Errorf("%s: %v", when, err)
		}
	}
	elsewhere("the first pod")
	r.OwnerAddresses = []netip.Addr{addr("10.3.0.9")}
	r.QueriedPools = []string{"lan"}
	_, err := n.tryFrom(t, r)
	n.refused(t, "it did not come", err, ErrTaken, "10.3.0.9 of pool lan is not available: the Kubernetes API has it for the owner, and this node has not got it")
	r.OwnerAddresses = nil
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.2/24" {
		t.Errorf("it has none: %s %v", got, err)
	}
	must(t, n.store(t).MarkClaimed(t.Context(), addr("10.3.0.2"), pod("web-0")))
	n.del(t, "c1/eth0")
	r = n.fromPools("c2/eth0", "web-0", "lan")
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.2/24" {
		t.Errorf("it is here: %s %v", got, err)
	}
	n.del(t, "c2/eth0")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "...+")}))
	r = n.fromPools("c3/eth0", "web-0", "lan")
	elsewhere("it has gone")
	choosingFrom("10.3.0.3", "10.3.0.7")(&r)
	elsewhere("one of two, and the owner may have the other one")
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.7"), pod("web-0"), "eth0", sticky, "it comes"))
	elsewhere("it is here, and the owner may have another one by now")
	r.QueriedPools, r.OwnerAddresses = []string{"lan"}, []netip.Addr{addr("10.3.0.7")}
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.7/24" {
		t.Errorf("it is here, and is one of the list: %s %v", got, err)
	}
	n.expect(t, "what it had before is given up", "10.3.0.2 quarantined c2/eth0 web-0", "10.3.0.7 held c3/eth0 web-0")
}

// An ADD has got an address for an owner, and has ended before the API knew of it. The owner can have another one on another node since.
// So the agent is asked, and what it says goes first.
func TestAnAddressThatTheAPIDoesNotKnow(t *testing.T) {
	const asks, not = "another node may have the owner's address of pool lan", "10.3.0.9 of pool lan is not available: the Kubernetes API has it for the owner, and this node has not got it"
	claimed := func(t *testing.T, n *node) {
		must(t, n.store(t).MarkClaimed(t.Context(), addr("10.3.0.2"), pod("web-0")))
	}
	acquired := func(owned ...string) func(*testing.T, *node, *Request) {
		return func(_ *testing.T, _ *node, r *Request) {
			r.QueriedPools = r.Pools
			for _, a := range owned {
				r.OwnerAddresses = append(r.OwnerAddresses, addr(a))
			}
		}
	}
	for name, test := range map[string]struct {
		before func(*testing.T, *node)
		held   bool
		change func(*testing.T, *node, *Request)
		want   string
	}{
		"the API knows of it":        {claimed, false, nil, "10.3.0.2/24"},
		"it does not":                {nil, false, nil, asks},
		"a sandbox before has it":    {nil, true, nil, asks},
		"the owner has none":         {nil, false, acquired(), "10.3.0.2/24"},
		"it is the owner's":          {nil, false, acquired("10.3.0.2"), "10.3.0.2/24"},
		"the owner has another one":  {nil, false, acquired("10.3.0.9"), not},
		"the other one of a sandbox": {nil, true, acquired("10.3.0.9"), not},
		"the other one has come": {nil, false, func(t *testing.T, n *node, r *Request) {
			must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.3"), pod("web-0"), "eth0", sticky, "it comes"))
			acquired("10.3.0.3")(t, n, r)
		}, "10.3.0.3/24"},
		"the other one has come before": {func(t *testing.T, n *node) {
			must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.3"), pod("web-0"), "eth0", sticky, "it comes"))
			n.later(time.Second)
		}, false, acquired("10.3.0.3"), "10.3.0.3/24"},
		"it is asked for":         {nil, false, func(_ *testing.T, _ *node, r *Request) { requesting("10.3.0.2")(r) }, "10.3.0.2/24"},
		"an operator has said so": {func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "web-0", 0) }, false, nil, "10.3.0.2/24"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", sticky)
			n.grant(t, lan, "..++")
			n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
			if test.before != nil {
				test.before(t, n)
			}
			if !test.held {
				n.del(t, "c1/eth0")
			}
			r := n.fromPools("c2/eth0", "web-0", "lan")
			if test.change != nil {
				test.change(t, n, &r)
			}
			got, err := n.tryFrom(t, r)
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
			n.expectVerified(t)
		})
	}
}

// Of an owner with several pods at a time the API knows no address. Nobody is asked, and its addresses wait here.
func TestSeveralPodsOfAnOwnerWaitHere(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.policy.Shared, n.policy.ByOwner = true, true
	n.grant(t, lan, "..++")
	for i, want := range []string{"10.3.0.2/24", "10.3.0.3/24"} {
		r := n.fromPools(fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), "lan")
		r.Owner, r.APIOwner = set("web", 0), set("web", 0)
		if got, err := n.tryFrom(t, r); err != nil || got != want {
			t.Errorf("%s %v, want %s", got, err, want)
		}
	}
	n.del(t, "c0/eth0")
	n.expect(t, "afterwards", "10.3.0.2 reserved c0/eth0 web", "10.3.0.3 held c1/eth0 web")

	// What is kept for a pod by its name is one pod's, whatever owner the pod names: the API knows its address.
	n.policy.ByOwner = false
	r := n.fromPools("c3/eth0", "web-7", "lan")
	r.APIOwner = set("web", 0)
	var elsewhere *ElsewhereError
	if got, err := n.tryFrom(t, r); !errors.As(err, &elsewhere) {
		t.Errorf("%s %v, want a question about the owner's address", got, err)
	}
}

// A virtual machine that moves has its address on both nodes: here without a grant. When it has moved, the address comes.
func TestAnAddressBesideAnotherNode(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++")
	r := n.fromPools("c1/eth0", "vm-1", "lan")
	r.QueriedPools, r.OwnerAddresses, r.MigratingAddresses = r.Pools, []netip.Addr{addr("10.3.0.9")}, []netip.Addr{addr("10.3.0.9")}
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.9/24" {
		t.Errorf("%s %v", got, err)
	}
	if p := n.granted(t).Pools[0]; p.Used != 0 || len(p.Leased) != 1 {
		t.Errorf("%+v", p)
	}
	other := n.fromPools("c2/eth0", "vm-2", "lan")
	other.QueriedPools, other.MigratingAddresses = other.Pools, r.MigratingAddresses
	_, err := n.tryFrom(t, other)
	n.refused(t, "another owner", err, ErrTaken, "address 10.3.0.9 is not available: it is held by eth0 of c1 on pods (pod default/vm-1)")
	r.MigratingAddresses, r.OwnerAddresses, r.QueriedPools = nil, nil, nil
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.9/24" {
		t.Errorf("a repeated ADD: %s %v", got, err)
	}
	n.del(t, "c1/eth0")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 2, ".+..")}))
	r.Attachment, r.QueriedPools = n.key("c3/eth0"), r.Pools
	if got, err := n.tryFrom(t, r); err != nil || got != "10.3.0.9/24" {
		t.Errorf("it has come: %s %v", got, err)
	}
}

// A pod's gateway that another pod has is remarked on once, however many blocks the node has.
func TestTheGatewayOfAPoolIsAPods(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	moved := lan
	moved.Gateway = addr("10.3.0.3")
	n.grant(t, lan, "..++", "++.+", "++++")
	n.giveFrom(t, "c1/eth0", "", "10.3.0.3")
	must(t, n.store(t).PutGrants(t.Context(), moved, nil))
	s := n.store(t)
	_, err := s.Allocate(t.Context(), n.fromPools("c2/eth0", "", "lan"))
	must(t, err)
	if r := s.Remarks(); len(r) != 1 || !strings.HasPrefix(r[0], "10.3.0.3, the gateway of 10.3.0.0/24, is held by eth0 of c1 on pods:") {
		t.Errorf("%q", r)
	}
}

// What an ADD asked for stays small in the store, and is the same whatever the node has of the pool.
func TestWhatIsKnownOfPools(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	for i, step := range []struct {
		blocks string
		pools  []string
		want   string
	}{
		{"...+ ....", []string{"lan"}, `{"pools":["lan"]}`},
		{"...+ ++..", []string{"lan"}, `{"pools":["lan"]}`},
		{"...+ ++.+", []string{"lan", "lan6"}, `{"pools":["lan","lan6"]}`},
	} {
		n.grant(t, lan, strings.Fields(step.blocks)...)
		n.grant(t, lan6, "++++++++")
		r := n.fromPools(fmt.Sprintf("c%d/net1", i), fmt.Sprint("web-", i), step.pools...)
		r.QueriedPools = r.Pools
		if _, err := n.tryFrom(t, r); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, n.path())[bucketMeta][`"ranges"`]; got != readable([]byte(step.want)) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// Two networks of a node can give addresses of one pool. Neither is the other one's new name.
func TestTwoNetworksOfAPool(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "..+.")
	n.addFrom(t, "c1/eth0", "", "10.3.0.2")
	n.network = "others"
	n.later(time.Second)
	n.grant(t, lan, "...+")
	n.addFrom(t, "c2/eth0", "", "10.3.0.3")
	if names, err := n.store(t).LeasedElsewhere(t.Context(), nil); err != nil || len(names) > 0 {
		t.Errorf("%v %v", names, err)
	}
}

// An owner's next pod that gets another address of the pool leaves nothing behind, even if the node has lost the other one.
func TestAnOwnerLeavesNothingBehindInAPool(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "...+")}))
	n.giveFrom(t, "c2/eth0", "web-0", "10.3.0.3")
	n.del(t, "c1/eth0")
	n.expect(t, "the one before goes last", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c2/eth0 web-0")
}

package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// A mark says that another node can have the address by now. No grant takes it back, and nothing else of that call is stored.
func TestWrongGrantsAreNotStored(t *testing.T) {
	other := granted(lan, 0, "+-..")
	other.First = addr("10.3.0.4")
	for name, test := range map[string]struct {
		layout pool.Layout
		grant  pool.Grant
		msg    string
	}{
		"a mark is taken back":          {lan, granted(lan, 0, "++.."), "grant lan-0 cannot be stored: 10.3.0.1 is being given back, and the mark of that is never taken back"},
		"a mark becomes one to probe":   {lan, granted(lan, 0, "+?.."), "grant lan-0 cannot be stored: 10.3.0.1 is being given back, and the mark of that is never taken back"},
		"the block has other addresses": {lan, other, "grant lan-0 cannot be stored: this node has addresses of 10.3.0.0-10.3.0.3, and the block has 10.3.0.4-10.3.0.7"},
		"it is shorter":                 {lan, granted(lan, 0, "+-."), "grant lan-0 cannot be stored: this node has addresses of 10.3.0.0-10.3.0.3, and the block has 10.3.0.0-10.3.0.2"},
		"of another pool":               {lan6, granted(lan, 0, "+-.."), "grant lan-0 is not of pool lan6"},
		"of no pool":                    {pool.Layout{}, granted(lan, 0, "+-.."), "a pool without a name cannot be stored"},
		"another character":             {lan, granted(lan, 0, "+-.A"), `grant lan-0 cannot be stored: its addresses are "+-.A"`},
		"no addresses":                  {lan, granted(lan, 0, ""), "grant lan-0 cannot be stored: it has 0 addresses: a block has 1 to 64"},
		"too many addresses":            {lan, granted(lan, 0, strings.Repeat("+", 65)), "grant lan-0 cannot be stored: it has 65 addresses: a block has 1 to 64"},
		"a negative index":              {lan, pool.Grant{Pool: "lan", Index: -1, First: addr("10.3.0.0"), Addresses: "+"}, "grant lan--1 cannot be stored: its index is -1"},
		"beyond all addresses":          {lan, pool.Grant{Pool: "lan", First: addr("255.255.255.255"), Addresses: "++"}, "grant lan-0 cannot be stored: it has no 2 addresses from 255.255.255.255 on"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			n.grant(t, lan, "+-..")
			before := n.granted(t)
			err := n.store(t).PutGrants(t.Context(), test.layout, []pool.Grant{granted(test.layout, 1, "++++"), test.grant})
			if err == nil || err.Error() != test.msg {
				t.Errorf("%v, want %s", err, test.msg)
			}
			if diff := cmp.Diff(before, n.granted(t), sameGrant); diff != "" {
				t.Errorf("it has changed (-want +got):\n%s", diff)
			}
		})
	}
}

// Marks end when the API has the address for somebody else, and with the block.
func TestMarksEnd(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "--..")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, ".-..")}))
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "+-..")}))
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, ".-..")}))
	anew := granted(lan, 0, "++++++")
	anew.First, anew.Block = addr("10.3.0.8"), "another"
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{anew}))
	if got := n.chars(t, "lan"); got != "++++++" {
		t.Errorf("%s: the block was made anew, with other addresses", got)
	}
}

// What nothing is left of is remembered, but not for ever.
func TestEmptyGrantsAreForgotten(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	large := lan
	large.Ranges = []pool.Span{{First: addr("10.3.0.0"), Last: addr("10.3.255.255")}}
	var all []pool.Grant
	for i := range int64(maxEmptyGrants + 4) {
		g := granted(large, i, "....")
		if g.Epoch = 1000 - i; i == maxEmptyGrants+3 {
			g.Addresses, g.Epoch = "...-", 0
		}
		all = append(all, g)
	}
	must(t, n.store(t).SetPools(t.Context(), []string{"lan", "lan6"}))
	must(t, n.store(t).PutGrants(t.Context(), lan6, []pool.Grant{granted(lan6, 0, "........")}))
	must(t, n.store(t).PutGrants(t.Context(), large, all[:maxEmptyGrants]))
	must(t, n.store(t).PutGrants(t.Context(), large, all[maxEmptyGrants:]))
	pools := n.granted(t).Pools
	got := pools[0].Grants
	if len(got) != maxEmptyGrants+1 || got[0].Index != 0 || got[len(got)-2].Index != maxEmptyGrants-1 || got[len(got)-1].Index != maxEmptyGrants+3 {
		t.Errorf("%d grants, from %d to %d and %d", len(got), got[0].Index, got[len(got)-2].Index, got[len(got)-1].Index)
	}
	if len(pools[1].Grants) != 1 {
		t.Errorf("the other pool has %v", pools[1].Grants)
	}
}

// What a newer relink has added to a grant stays, like unknown fields of a lease.
func TestWhatANewerRelinkAddsToAGrantStays(t *testing.T) {
	b := append(encodeGrant(granted(lan, 3, "+?-.")), textKey("future")...)
	g, rest, err := decodeGrant(grantKey("lan", 3), b)
	if err != nil || g != granted(lan, 3, "+?-.") || string(rest) != string(textKey("future")) {
		t.Errorf("%+v %q %v", g, rest, err)
	}
	for i := range encodeGrant(g) {
		if _, _, err := decodeGrant(grantKey("lan", 3), b[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of it: %v", i, err)
		}
	}
	if _, _, err := decodeGrant(grantKey("lan", 3)[:9], b); !errors.Is(err, ErrDamaged) {
		t.Errorf("a key that was cut short: %v", err)
	}
}

// mark marks addresses of a block of lan, with the reservations that end by it.
func (s *Store) mark(t testing.TB, index int64, offsets []int, handedOver ...netip.Addr) (pool.Grant, error) {
	o, err := s.Reconcile(t.Context(), lan, index, func(p PoolState) (pool.Outcome, error) {
		return pool.Outcome{Grant: p.Grant(index).Mark(offsets), HandedOver: handedOver}, nil
	})
	return o.Grant, err
}

// Only an address without a lease is given back. A reservation ends by that, if the owner's next pod gets it on another node.
func TestMarks(t *testing.T) {
	for name, test := range map[string]struct {
		offset int
		hand   bool
		is     error
		msg    string
		// chars are those of the grant afterwards, events what happened to the address.
		chars, events string
	}{
		"free":                              {0, false, nil, "<nil>", "-+?+", ""},
		"needs a probe":                     {2, false, nil, "<nil>", "++-+", ""},
		"waits for its owner":               {1, false, ErrTaken, "10.3.0.1 is not available: it is reserved for pod default/web-0, and cannot be given back", "++?+", "given,given up"},
		"waits, and its owner is elsewhere": {1, true, nil, "<nil>", "+-?+", "given,given up,handed over: the owner's next pod gets it on another node"},
		"held":                              {3, false, ErrTaken, "10.3.0.3 is not available: it is held by eth0 of c2 on pods (pod default/db-0), and cannot be given back", "++?+", "given"},
		"held, and its owner is elsewhere":  {3, true, ErrTaken, "10.3.0.3 is not available: it is held by eth0 of c2 on pods (pod default/db-0), and cannot be handed over", "++?+", "given"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", sticky)
			n.grant(t, lan, "++?+")
			n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.1")
			n.giveFrom(t, "c2/eth0", "db-0", "10.3.0.3")
			n.del(t, "c1/eth0")
			a := addr(fmt.Sprint("10.3.0.", test.offset))
			var handed []netip.Addr
			if test.hand {
				handed = append(handed, a)
			}
			g, err := n.store(t).mark(t, 0, []int{test.offset}, handed...)
			n.refused(t, "mark", err, test.is, test.msg)
			if got := n.chars(t, "lan"); got != test.chars || err == nil && g.Addresses != got {
				t.Errorf("%s, and it returns %s, want %s", got, g.Addresses, test.chars)
			}
			if got := n.events(t, a.String()); got != test.events {
				t.Errorf("events %q, want %q", got, test.events)
			}
			n.expectVerified(t)
		})
	}
}

// An address in quarantine waits on the node where it was. Once that is over, it can be given back.
func TestMarkAfterTheQuarantine(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "..+.")
	n.addFrom(t, "c1/eth0", "", "10.3.0.2")
	n.del(t, "c1/eth0")
	if _, err := n.store(t).mark(t, 0, []int{2}); !errors.Is(err, ErrTaken) {
		t.Errorf("in quarantine: %v", err)
	}
	n.later(61 * time.Second)
	if g, err := n.store(t).mark(t, 0, []int{2}); err != nil || g.Addresses != "..-." {
		t.Errorf("%q %v, want ..-.", g.Addresses, err)
	}
	_, err := n.store(t).Allocate(t.Context(), n.fromPools("c2/eth0", "", "lan"))
	n.refused(t, "ADD", err, ErrExhausted, "pool lan of network pods: no address is free: no address of it is granted to this node")
}

// giveFrom gives the attachment that address of lan. The API allows it even if the address is excluded by now.
func (n *node) giveFrom(t *testing.T, sandbox, owner, address string) {
	t.Helper()
	r := n.fromPools(sandbox, owner, "lan")
	r.MigratingAddresses, r.QueriedPools = append(r.MigratingAddresses, addr(address)), r.Pools
	given, err := n.store(t).Allocate(t.Context(), r)
	if err != nil || given[0].Address != addr(address) {
		t.Fatalf("%v %v", given, err)
	}
}

// events tells what happened to the address, and why the address was handed over.
func (n *node) events(t *testing.T, address string) string {
	t.Helper()
	all, err := n.store(t).History(t.Context(), addr(address))
	must(t, err)
	var texts []string
	for _, e := range all {
		text := string(e.Type)
		if e.Type == HandedOver || e.Type == Awaited {
			text += ": " + e.Reason
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}

// An address that comes from another node is kept for its owner before it comes. Nobody else gets it then.
func TestExpect(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..+.")
	expect := func(address, owner string) error {
		return n.store(t).ReserveIncoming(t.Context(), addr(address), pod(owner), "net1", stickyFor(time.Hour), "it moves here")
	}
	must(t, expect("10.3.0.3", "web-0"))
	must(t, expect("10.3.0.3", "web-0"))
	n.refused(t, "another owner", expect("10.3.0.3", "web-1"), ErrTaken, "10.3.0.3 is not available: it is reserved for pod default/web-0")
	if err := n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.9"), attachment.Owner{}, "net1", sticky, ""); fmt.Sprint(err) != "an address cannot be reserved for nobody" {
		t.Errorf("nobody: %v", err)
	}
	l := n.get(t, "10.3.0.3")
	if got := fmt.Sprint(l.Last.IfName, " ", l.Until.Sub(n.day), " ", l.Reason); got != "net1 1h0m0s it moves here" {
		t.Error(got)
	}
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "..++")}))
	n.policy = minute
	n.addFrom(t, "c1/eth0", "", "10.3.0.2")
	_, err := n.store(t).Allocate(t.Context(), n.fromPools("c2/eth0", "web-1", "lan"))
	n.refused(t, "no other", err, ErrExhausted,
		"pool lan of network pods: no address is free of the 2 that this node has: 1 held, 1 reserved, 0 in quarantine; relink ipam list says for whom")
	n.addFrom(t, "c3/net1", "web-0", "10.3.0.3")
	if got := n.events(t, "10.3.0.3"); got != "awaited: it moves here,given" {
		t.Error(got)
	}
	must(t, expect("10.3.0.3", "web-0"))
	n.refused(t, "a held one", expect("10.3.0.2", "web-0"), ErrTaken, "10.3.0.2 is not available: it is held by eth0 of c1 on pods")
	n.del(t, "c1/eth0")
	must(t, expect("10.3.0.2", "web-1"))
	n.expect(t, "one in quarantine", "10.3.0.2 reserved web-1", "10.3.0.3 held c3/net1 web-0")
}

// Without a time of its own, an expected address waits long enough for the other node to give it up.
func TestExpectedForAWhile(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "..+.")
	for policy, want := range map[Policy]time.Duration{minute: minIncomingWait, stickyFor(time.Minute): minIncomingWait, stickyFor(time.Hour): time.Hour} {
		a := addr("10.3.0.9")
		must(t, n.store(t).ReserveIncoming(t.Context(), a, pod("web-0"), "eth0", policy, ""))
		if got := n.get(t, a.String()).Until.Sub(n.day); got != want {
			t.Errorf("%+v: %s, want %s", policy, got, want)
		}
		must(t, n.store(t).CancelIncoming(t.Context(), "lan", a, pod("web-0")))
	}
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.9"), pod("web-0"), "eth0", sticky, ""))
	if until := n.get(t, "10.3.0.9").Until; !until.IsZero() {
		t.Errorf("for ever: %s", until)
	}
}

// What was expected and does not come is free again. What a pod has had stays.
func TestUnexpect(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
	n.giveFrom(t, "c2/eth0", "web-1", "10.3.0.3")
	n.del(t, "c2/eth0")
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.4"), pod("web-2"), "eth0", sticky, ""))
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.5"), pod("web-3"), "eth0", sticky, ""))
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.7"), pod("web-4"), "eth0", sticky, ""))
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 1, "...+")}))
	n.reserve(t, "10.3.0.7", "web-4", 0)
	for address, owner := range map[string]string{"10.3.0.2": "web-0", "10.3.0.3": "web-1", "10.3.0.4": "web-9", "10.3.0.5": "web-3", "10.3.0.7": "web-4", "10.3.0.9": "web-0"} {
		must(t, n.store(t).CancelIncoming(t.Context(), "lan", addr(address), pod(owner)))
	}
	n.expect(t, "afterwards", "10.3.0.2 held c1/eth0 web-0", "10.3.0.3 reserved c2/eth0 web-1", "10.3.0.4 reserved web-2", "10.3.0.7 reserved web-4")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "....")}))
	for _, address := range []string{"10.3.0.2", "10.3.0.3"} {
		must(t, n.store(t).CancelIncoming(t.Context(), "lan", addr(address), pod("web-1")))
	}
	n.expect(t, "what the node does not have waits for nobody", "10.3.0.2 held c1/eth0 web-0", "10.3.0.4 reserved web-2", "10.3.0.7 reserved web-4")
}

// An address that is about to move with its owner waits without a time limit.
func TestAwait(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(time.Hour))
	n.grant(t, lan, "..++")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
	n.giveFrom(t, "c2/eth0", "web-1", "10.3.0.3")
	for range 2 {
		_, err := n.store(t).Reconcile(t.Context(), lan, 0, func(p PoolState) (pool.Outcome, error) {
			return pool.Outcome{Grant: p.Grant(0), Kept: []netip.Addr{addr("10.3.0.2"), addr("10.3.0.9")}}, nil
		})
		must(t, err)
	}
	n.del(t, "c1/eth0")
	n.del(t, "c2/eth0")
	if until := n.get(t, "10.3.0.2").Until; !until.IsZero() {
		t.Errorf("it waits until %s", until)
	}
	if until := n.get(t, "10.3.0.3").Until; until.IsZero() {
		t.Error("the other one waits for ever, too")
	}
}

// The API is told again of an address that was away: its owner can have been on another node meanwhile.
func TestALostAddressIsClaimedAgain(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
	claimed := func() bool { return n.get(t, "10.3.0.2").Claimed }
	must(t, n.store(t).MarkClaimed(t.Context(), addr("10.3.0.2"), pod("web-1")))
	if claimed() {
		t.Error("claimed for another owner")
	}
	must(t, n.store(t).MarkClaimed(t.Context(), addr("10.3.0.2"), pod("web-0")))
	n.del(t, "c1/eth0")
	n.addFrom(t, "c2/eth0", "web-0", "10.3.0.2")
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "..+.")}))
	if !claimed() {
		t.Error("the next pod of the owner has to claim it again")
	}
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "....")}))
	if claimed() {
		t.Error("claimed although the node has lost it")
	}
	n.expect(t, "its pod keeps it", "10.3.0.2 held c2/eth0 web-0")
}

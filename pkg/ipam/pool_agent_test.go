package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// lan and lan6 are pools of 8 addresses in one block.
var (
	lan = pool.Layout{
		Name: "lan", UID: "u1", Subnet: netip.MustParsePrefix("10.3.0.0/24"), Gateway: addr("10.3.0.1"), BlockSize: 8,
		Ranges: []pool.Span{{First: addr("10.3.0.0"), Last: addr("10.3.0.15")}}, Routes: []pool.Route{{Dst: "10.0.0.0/8", GW: "10.3.0.1"}},
	}
	lan6 = pool.Layout{
		Name: "lan6", UID: "u2", Subnet: netip.MustParsePrefix("fd00:3::/64"), BlockSize: 8,
		Ranges: []pool.Span{{First: addr("fd00:3::10"), Last: addr("fd00:3::1f")}}, Routes: []pool.Route{{Dst: "::/0"}},
	}
)

// agent stands for relink-agent: it answers about owners, and about pools.
type agent struct {
	fakeOwners
	t *testing.T
	n *node
	// gives is what a Refill gets of each pool: the characters of its first block.
	gives map[string]string
	// takes has the pool that this node takes of each choice.
	takes map[string]string
	// has are the addresses that owners have on other nodes, by the names of the owners or by the address that is wanted. migrating says
	// that they are still in use there.
	has       map[string]string
	migrating bool
	// refill, acquire and claim are what the requests fail with.
	refill, acquire, claim error
	// lost says that an address is announced, and does not come.
	lost bool
	// asked are the requests.
	asked []string
	// told are the last Acquisition and Claimed.
	acquired pool.Acquisition
	claimed  pool.ClaimedAddress
}

func layouts(name string) pool.Layout { return map[string]pool.Layout{"lan": lan, "lan6": lan6}[name] }

// grant gives the node these characters of a block of the pool.
func (n *node) grant(t *testing.T, name string, index int64, chars string) {
	t.Helper()
	l := layouts(name)
	if chars += strings.Repeat(".", l.BlockSize-len(chars)); l.Name == "" {
		t.Fatal(name)
	}
	s, ctx := n.store(t), t.Context()
	span, _ := l.Block(index)
	g := pool.Grant{Pool: name, PoolUID: l.UID, Index: index, Block: pool.BlockName(name, index), Epoch: 1, First: span.First, Addresses: chars}
	if _, err := s.Granted(ctx); err != nil {
		if err := s.SetPools(ctx, []string{name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.PutGrants(ctx, l, []pool.Grant{g}), s.Confirm(ctx)); err != nil {
		t.Fatal(err)
	}
}

func (a *agent) Refill(_ context.Context, d pool.Demand) error {
	a.asked = append(a.asked, "refill "+d.Network+" "+strings.Join(d.Pools, " "))
	if a.refill != nil {
		return a.refill
	}
	if err := a.n.store(a.t).SetChosen(a.t.Context(), a.takes); err != nil {
		return err
	}
	for name, chars := range a.gives {
		a.n.grant(a.t, name, 0, chars)
	}
	return nil
}

func (a *agent) Acquire(ctx context.Context, q pool.Acquisition) (pool.Acquired, error) {
	text := "acquire " + q.Pool + " " + q.IfName + " " + q.Owner.Name
	key := q.Owner.Name
	if q.Requested.IsValid() {
		text, key = text+" "+q.Requested.String(), q.Requested.String()
	}
	a.asked, a.acquired = append(a.asked, text), q
	has := a.has[key]
	switch {
	case a.acquire != nil:
		return pool.Acquired{}, a.acquire
	case has == "" && q.Requested.IsValid():
		return pool.Acquired{}, fmt.Errorf("%w: node b has %s", pool.ErrUnavailable, q.Requested)
	case has == "":
		return pool.Acquired{}, nil
	}
	address := addr(has)
	if !a.lost && !a.migrating {
		index, _ := layouts(q.Pool).Index(address)
		span, _ := layouts(q.Pool).Block(index)
		offset := int(address.As4()[3] - span.First.As4()[3])
		a.n.grant(a.t, q.Pool, index, strings.Repeat(".", offset)+"+")
		if err := a.n.store(a.t).ReserveIncoming(ctx, address, q.Owner, q.IfName, lease.Policy{Sticky: true, Retain: lease.Duration(q.Retain)}, "it comes"); err != nil {
			return pool.Acquired{}, err
		}
	}
	return pool.Acquired{Address: address, Migrating: a.migrating}, nil
}

func (a *agent) Claim(_ context.Context, c pool.ClaimedAddress) error {
	a.asked, a.claimed = append(a.asked, "claim "+c.Pool+" "+c.IfName+" "+c.Owner.Name+" "+c.Address.String()), c
	return a.claim
}

// requests returns what was asked since the last time.
func (a *agent) requests() string {
	all := strings.Join(a.asked, ", ")
	a.asked = nil
	return all
}

// newPoolNode returns a node with an agent, whose configuration has these keys.
func newPoolNode(t *testing.T, ipam string) (*node, *agent) {
	t.Helper()
	n := newNode(t, ipam)
	n.dirInEnv = true
	t.Setenv(lease.DirEnv, n.dir)
	a := &agent{t: t, n: n}
	a.err = fmt.Errorf("%w: %w", owner.ErrUnavailable, owner.ErrNoAsker)
	n.owners = a
	return n, a
}

// addCommitted is an ADD as an interface plugin makes it. It returns the addresses and the routes of the result, and the grant.
func (n *node) addCommitted(t *testing.T, sandbox, pod, want string, change ...func(*Call)) (string, *Grant, error) {
	t.Helper()
	args := n.args(sandbox, pod)
	if want != "" {
		args.Args = strings.TrimPrefix(args.Args+";IP="+want, ";")
	}
	c := n.begin(t, args)
	for _, f := range change {
		f(c)
	}
	g, err := c.Add(t.Context())
	if err != nil {
		return "", g, err
	}
	var all []string
	for _, ip := range g.Result.IPs {
		text := ip.Address.String()
		if ip.Gateway != nil {
			text += " via " + ip.Gateway.String()
		}
		all = append(all, text)
	}
	for _, r := range g.Result.Routes {
		text := "to " + r.Dst.String()
		if r.GW != nil {
			text += " via " + r.GW.String()
		}
		all = append(all, text)
	}
	if err := g.Commit(t.Context()); err != nil {
		if undone := c.Del(t.Context()); undone != nil {
			t.Error(undone)
		}
		return "", g, err
	}
	return strings.Join(all, ", "), g, nil
}

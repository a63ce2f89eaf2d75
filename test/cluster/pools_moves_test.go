package cluster

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
	"github.com/relink-cni/relink/test/pooltest"
)

// share has nodes share a pool on a real API, with the rights and the policies of deploy/.
func (a *api) share(t *testing.T, users map[string]user) {
	t.Run("what is left over goes back", func(t *testing.T) { a.leftOver(t, users) })
	t.Run("a pool is changed and deleted", func(t *testing.T) { a.endOfPool(t, users) })
	t.Run("an owner moves", func(t *testing.T) { a.ownerMoves(t, users) })
	t.Run("a machine migrates", func(t *testing.T) { a.migrates(t, users) })
	t.Run("a migration that fails", func(t *testing.T) { a.migratesNot(t, users) })
	t.Run("a migration from a dead node", func(t *testing.T) { a.migratesFromADeadNode(t, users) })
	t.Run("claims follow the stores", func(t *testing.T) { a.claimsFollow(t, users) })
	t.Run("a node is fenced by hand", func(t *testing.T) { a.fencedByHand(t, users) })
	if os.Getenv("RELINK_LONG") != "" { // The explorer has it crash at each step, and "a node is killed at its steps" has a process.
		t.Run("an agent is killed at each step", func(t *testing.T) { a.killed(t, users) })
	}
	t.Run("through the plugin", func(t *testing.T) { a.throughThePlugin(t, users) })
	t.Run("from Whereabouts", func(t *testing.T) { a.takenOver(t, users) })
	t.Run("an address twice", func(t *testing.T) { a.twice(t, users) })
	t.Run("from host-local", func(t *testing.T) { a.directory(t, users) })
	t.Run("an agent is killed in an import", func(t *testing.T) { a.killedImport(t, users) })
	t.Run("the API forgets", func(t *testing.T) { a.forgetful(t, users) })
	t.Run("a node is killed at its steps", func(t *testing.T) { a.killedAtSteps(t, users) })
	t.Run("pools that overlap", func(t *testing.T) { a.overlaps(t, users) })
	t.Run("racks", func(t *testing.T) { a.racks(t, users) })
	t.Run("a node is drained", func(t *testing.T) { a.drained(t, users) })
	t.Run("a node from an image", func(t *testing.T) { a.copies(t, users) })
	t.Run("late DELs", func(t *testing.T) { a.lateDELs(t, users) })
	t.Run("scenes", func(t *testing.T) { a.scenes(t, users) })
	t.Run("histories", func(t *testing.T) { a.histories(t, users) })
	t.Run("something fails", func(t *testing.T) { a.failuresOfTable(t, users) })
	t.Run("on the wire", func(t *testing.T) { a.onTheWire(t, users) })
}

// keeper looks at all pools at once with the rights of the controller.
type keeper struct {
	*controller.Controller
	api pool.API
}

func (a *api) controller(t *testing.T, users map[string]user) keeper {
	t.Helper()
	api := a.poolsOf(t, "controller", users["controller"])
	return keeper{controller.New(controller.Config{API: api, Log: slog.New(slog.DiscardHandler)}), api}
}

// fastClock has an hour in two seconds.
func fastClock() func() time.Time {
	begun := time.Now()
	return func() time.Time { return begun.Add(1800 * time.Since(begun)) }
}

// Reconcile looks once.
func (k keeper) Reconcile(ctx context.Context) error {
	return pooltest.Reconcile(ctx, k.api, k.Controller.Reconcile)
}

// newPool makes the pool lan anew: 61 addresses in 16 blocks.
func (a *api) newPool(t *testing.T, users map[string]user, subnet string) {
	t.Helper()
	admin := users["admin"]
	for _, m := range a.nodes { // They would take blocks of the new pool, and nobody would look at them again.
		m.rest()
	}
	a.nodes = nil
	noPool(t, admin, "lan")
	p := pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: subnet, Gateway: netip.MustParsePrefix(subnet).Addr().Next().String(), BlockSize: 4}}
	admin.must(t, http.MethodPost, pools, poolObject(p), nil)
}

// noPool deletes the pool, if there is one, and the blocks and claims of all pools.
func noPool(t *testing.T, admin user, name string) {
	t.Helper()
	for _, path := range []string{blocks, claims} {
		admin.must(t, http.MethodDelete, path, m{}, nil)
	}
	deletePool(t, admin, name)
}

// deletePool deletes the pool, whoever has addresses of it: the controller may.
func deletePool(t *testing.T, admin user, name string) {
	t.Helper()
	keep := user{&http.Client{Timeout: admin.http.Timeout, Transport: impersonates{admin.http.Transport, "system:serviceaccount:relink-system:relink-controller"}}, admin.token}
	keep.send(t, http.MethodPatch, pools+"/"+name, m{"metadata": m{"finalizers": nil, "annotations": m{"ipam.relink.dev/delete": name}}})
	admin.send(t, http.MethodDelete, pools+"/"+name, m{})
}

// impersonates asks as another user.
type impersonates struct {
	http.RoundTripper
	user string
}

func (c impersonates) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Impersonate-User", c.user)
	return c.RoundTripper.RoundTrip(r)
}

// members are nodes that share the pool.
func (a *api) members(t *testing.T, users map[string]user, subnet string) (all []*member) {
	t.Helper()
	a.newPool(t, users, subnet)
	for _, name := range []string{"node1", "node2", "node3"} {
		all = append(all, a.member(t, name, users[name]))
	}
	return all
}

// As many pods as addresses get one each, wherever they start. No other one gets any.
func (a *api) allAddresses(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.3.0.0/26")
	had := map[netip.Addr]string{}
	for i := range 61 {
		m := all[rand.IntN(len(all))]
		p := m.must(t, m.request(lease.Policy{}, ""))
		if by := had[p.address]; by != "" {
			t.Fatalf("pod %d: %s was given by %s and by %s", i, p.address, by, m.name)
		}
		had[p.address] = m.name
	}
	if had[netip.MustParseAddr("10.3.0.1")] != "" || len(had) != 61 {
		t.Errorf("%d addresses, the gateway by %q", len(had), had[netip.MustParseAddr("10.3.0.1")])
	}
	all[0].refuses(t, "no address of the pool lan is free, and no other node has given one in time", func() (given, error) {
		return all[0].add(t.Context(), all[0].request(lease.Policy{}, ""))
	})
}

// A node gives back what it has had too much of for a while, and the block is deleted.
func (a *api) leftOver(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.4.0.0/26")
	m := all[0]
	var pods []given
	for range 20 {
		pods = append(pods, m.must(t, m.request(lease.Policy{}, "")))
	}
	if n := len(a.blocksNow(t, users)); n < 5 {
		t.Errorf("%d blocks for 20 pods", n)
	}
	for _, p := range pods {
		m.del(t, p)
	}
	await(t, 20*time.Second, "all blocks but one to go back", func() bool {
		m.Reconcile(t.Context())
		return len(a.blocksNow(t, users)) == 1
	})
}

func (a *api) blocksNow(t *testing.T, users map[string]user) []pool.Block {
	t.Helper()
	var list struct {
		Items []pool.Block `json:"items"`
	}
	users["admin"].must(t, http.MethodGet, blocks, nil, &list)
	return list.Items
}

var sticky = lease.Policy{Sticky: true}

// acquisition is what the ADD of an owner's pod asks the agent for.
func acquisition(owner string) pool.Acquisition {
	return pool.Acquisition{Network: "lan", Pool: "lan", IfName: "eth0", Owner: attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: owner}}
}

// tryOwned is the ADD of an owner's pod. If the claim fails, the pod has an address, and the ADD has failed.
func (m *member) tryOwned(ctx context.Context, owner string) (given, error) {
	return m.tryAcquired(ctx, acquisition(owner), sticky)
}

// tryAcquired is tryOwned for any owner.
func (m *member) tryAcquired(ctx context.Context, a pool.Acquisition, policy lease.Policy) (given, error) {
	if _, err := m.Acquire(ctx, a); err != nil {
		return given{}, err
	}
	r := m.request(policy, "")
	r.Owner, r.QueriedPools = a.Owner, r.Pools
	p, err := m.add(ctx, r)
	if err != nil {
		return given{}, err
	}
	if err := m.Claim(ctx, pool.ClaimedAddress{Acquisition: a, Address: p.address}); err != nil {
		return p, err
	}
	return p, m.store.MarkClaimed(ctx, p.address, r.Owner)
}

// startOwned starts an owner's pod. The runtime sends a DEL after an ADD that has failed.
func (m *member) startOwned(ctx context.Context, t *testing.T, owner string) (given, error) {
	t.Helper()
	p, err := m.tryOwned(ctx, owner)
	if err != nil && p.address.IsValid() {
		m.del(t, p)
	}
	return p, err
}

// mustOwn is startOwned that succeeds within some tries.
func (m *member) mustOwn(t *testing.T, owner string) given {
	t.Helper()
	return m.starts(t, func() (given, error) { return m.startOwned(t.Context(), t, owner) })
}

// refusesOwner expects that the owner's pod does not start, and why.
func (m *member) refusesOwner(t *testing.T, want string) {
	t.Helper()
	m.refuses(t, want, func() (given, error) { return m.startOwned(t.Context(), t, "web-0") })
}

// The next pod of an owner gets its address on another node, but only after the pod before has ended.
func (a *api) ownerMoves(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.5.0.0/26")
	first := all[0].mustOwn(t, "web-0")
	for range 3 { // Other pods do not get in its way.
		all[1].must(t, all[1].request(lease.Policy{}, ""))
	}
	all[1].refusesOwner(t, "node node1 has "+first.address.String()+" of the pool lan, and has not handed it over")
	all[0].del(t, first)
	second := all[1].mustOwn(t, "web-0")
	if second.address != first.address {
		t.Fatalf("on the other node: %s, want %s\n%s", second.address, first.address, all[0].log.String())
	}
	all[0].del(t, first) // A late DEL frees nothing.
	if held, err := all[1].store.HeldBy(t.Context(), second.key); err != nil || len(held) != 1 {
		t.Errorf("after a late DEL: %v, %v", held, err)
	}
	var c pool.Claim
	users["admin"].must(t, http.MethodGet, claims+"/"+pool.ClaimName("lan", "eth0", acquisition("web-0").Owner), nil, &c)
	if c.Status.Active.Node != "node2" || c.Status.Epoch != 2 || c.Status.Address != first.address {
		t.Errorf("the claim is %+v", c.Status)
	}
	// The API says whose the address is.
	said, code := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "show", first.address.String())
	if code != 0 || !strings.Contains(said, "\nNode:     node2\n") || !strings.Contains(said, "\nClaim:    "+c.Metadata.Name+"\n") {
		t.Errorf("who has %s: status %d\n%s", first.address, code, said)
	}
	const gateway = "Node:     nobody: the pool never gives this address\nOwner:    nobody\n\nrelink: no node has 10.5.0.1, and the pool lan never gives it\n"
	if said, code = kubectl(t, "KUBECONFIG="+a.adminConfig(t), "show", "10.5.0.1"); code != 1 || !strings.HasSuffix(said, gateway) {
		t.Errorf("who has the gateway: status %d\n%s", code, said)
	}
}

package cluster

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// overlaps has pools share addresses by mistakes of people. No address has two pods, the older pool goes on, and the younger one says why
// it gives nothing.
func (a *api) overlaps(t *testing.T, users map[string]user) {
	t.Run("a range is added over two of another pool", func(t *testing.T) { a.rangeOverOthers(t, users) })
	t.Run("a younger pool is much too large", func(t *testing.T) { a.tooLarge(t, users) })
	t.Run("a spec is wrong", func(t *testing.T) { a.wrongSpec(t, users) })
}

// overlapping are nodes, and who makes pools that are deleted at the end.
type overlapping struct {
	t     *testing.T
	api   *api
	admin user
	nodes []*member
	has   map[netip.Addr]string
}

func (a *api) newOverlapping(t *testing.T, users map[string]user) *overlapping {
	t.Helper()
	o := &overlapping{t: t, api: a, admin: users["admin"], nodes: a.members(t, users, "10.89.0.0/24"), has: map[netip.Addr]string{}}
	noPool(t, o.admin, "lan")
	return o
}

// pool makes a pool, with blocks of 4 addresses.
func (o *overlapping) pool(name string, s pool.Spec) {
	o.t.Helper()
	s.BlockSize = 4
	o.admin.must(o.t, http.MethodPost, pools, poolObject(pool.Pool{Metadata: pool.Meta{Name: name}, Spec: s}), nil)
	o.t.Cleanup(func() {
		for _, m := range o.nodes {
			m.rest()
		}
		noPool(o.t, o.admin, name)
	})
}

// patch changes the spec of a pool.
func (o *overlapping) patch(name string, spec m) {
	o.t.Helper()
	o.admin.must(o.t, http.MethodPatch, pools+"/"+name, m{"spec": spec}, nil)
}

// starts starts a pod with an address of the pool on the node, and fails if another pod has the address.
func (o *overlapping) starts(node *member, name string) error {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), pool.AgentLimit)
	defer cancel()
	r := node.request(lease.Policy{}, "")
	r.Pools = []string{name}
	p, err := node.add(ctx, r)
	if err != nil {
		return err
	}
	if other := o.has[p.address]; other != "" {
		o.t.Fatalf("%s is of a pod of %s, and now of one of %s on %s", p.address, other, name, node.name)
	}
	o.has[p.address] = name + " on " + node.name
	return nil
}

// start starts so many pods, as a runtime does: it tries again.
func (o *overlapping) start(node *member, name string, pods int) {
	o.t.Helper()
	for range pods {
		node.starts(o.t, func() (given, error) { return given{}, o.starts(node, name) })
	}
}

// gives starts pods until none starts any more, and returns how many have.
func (o *overlapping) gives(node *member, name string) (pods int) {
	o.t.Helper()
	for failed := 0; failed < 3; {
		if err := o.starts(node, name); err != nil {
			failed++
			continue
		}
		pods, failed = pods+1, 0
	}
	return pods
}

// refuses tries until a pod is refused with these words.
func (o *overlapping) refuses(node *member, name, want string) {
	o.t.Helper()
	var err error
	await(o.t, 30*time.Second, "a pod to be refused: "+want, func() bool {
		err = o.starts(node, name)
		return err != nil && strings.Contains(err.Error(), want)
	})
}

// problem has the controller look, and returns the status of a pool.
func (o *overlapping) status(users map[string]user, name string) pool.Status {
	o.t.Helper()
	if err := o.api.controller(o.t, users).Reconcile(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	var p pool.Pool
	o.admin.must(o.t, http.MethodGet, pools+"/"+name, nil, &p)
	return p.Status
}

// Somebody adds a range to the older pool that has two ranges of the younger one, which pods use.
func (a *api) rangeOverOthers(t *testing.T, users map[string]user) {
	o := a.newOverlapping(t, users)
	o.pool("old", pool.Spec{Subnet: "10.90.0.0/24", Ranges: []string{"10.90.0.200-10.90.0.203"}})
	o.pool("young", pool.Spec{Subnet: "10.90.0.0/24", Ranges: []string{"10.90.0.16-10.90.0.19", "10.90.0.32-10.90.0.35"}})
	o.start(o.nodes[0], "young", 5) // Both blocks.
	o.patch("old", m{"ranges": []string{"10.90.0.200-10.90.0.203", "10.90.0.16-10.90.0.39"}})
	if n := o.gives(o.nodes[1], "old"); n != 4+24-8 {
		t.Errorf("old gives %d addresses, want its own, and 16 that young has not given", n)
	}
	const why = "10.90.0.16-10.90.0.19 of it is in AddressPool old (10.90.0.16-10.90.0.39), too: make a pool of other addresses"
	o.refuses(o.nodes[2], "young", "the pool young gives nothing new: "+why)
	if n := o.gives(o.nodes[0], "young"); n != 3 {
		t.Errorf("node1 has %d more addresses of young to give, want the 3 that it had", n)
	}
	if s := o.status(users, "young"); s.Problem() != why || s.Existing != 2 {
		t.Errorf("the status of young is %+v", s)
	}
	if s := o.status(users, "old"); s.Problem() != "" {
		t.Errorf("the problem of old is %q", s.Problem())
	}
}

// Somebody makes a pool of all addresses that there are in the house. The pool that works goes on.
func (a *api) tooLarge(t *testing.T, users map[string]user) {
	o := a.newOverlapping(t, users)
	o.pool("old", pool.Spec{Subnet: "10.90.0.0/24", Ranges: []string{"10.90.0.16-10.90.0.31"}})
	o.start(o.nodes[0], "old", 3)
	o.pool("young", pool.Spec{Subnet: "10.0.0.0/8"})
	const why = "10.0.0.1-10.255.255.254 of it is in AddressPool old (10.90.0.16-10.90.0.31), too: make a pool of other addresses"
	o.refuses(o.nodes[2], "young", "the pool young gives nothing new: "+why)
	o.start(o.nodes[1], "old", 9)
	if young, old := o.status(users, "young"), o.status(users, "old"); young.Problem() != why || young.Existing != 0 || old.Problem() != "" || old.Existing < 3 {
		t.Errorf("the status of young is %+v, and that of old %+v", young, old)
	}
	noPool(t, o.admin, "none") // The blocks of old: nobody has anything of it any more.
	deletePool(t, o.admin, "old")
	o.start(o.nodes[2], "young", 1)
}

// A pool in use gets a wrong spec. Somebody makes another one with the same addresses before it is corrected.
func (a *api) wrongSpec(t *testing.T, users map[string]user) {
	o := a.newOverlapping(t, users)
	o.pool("first", pool.Spec{Subnet: "10.90.0.0/24", Ranges: []string{"10.90.0.16-10.90.0.31"}})
	o.start(o.nodes[0], "first", 5)
	o.patch("first", m{"exclude": []string{"10.99.0.1"}})
	o.pool("second", pool.Spec{Subnet: "10.90.0.0/24", Ranges: []string{"10.90.0.16-10.90.0.31"}})
	o.refuses(o.nodes[1], "second", "10.90.0.16-10.90.0.31 of it is in AddressPool first, which counts as all of 10.90.0.0/24 until its spec is correct")
	o.refuses(o.nodes[1], "first", `invalid spec.exclude[0] "10.99.0.1": must have addresses of the subnet`)
	if s := o.status(users, "first"); s.Existing < 2 || s.Granted < 5 || !strings.Contains(s.Problem(), "invalid spec.exclude[0]") {
		t.Errorf("the status of first is %+v", s)
	}
	said, answer := o.admin.send(t, http.MethodPatch, pools+"/first?dryRun=All", m{"metadata": m{"finalizers": nil}})
	check(t, "the finalizer", said, answer, http.StatusForbidden, "AddressPool first keeps its finalizer: nodes have addresses in")
	o.patch("first", m{"exclude": nil})
	o.start(o.nodes[1], "first", 5) // The status has the problem so far.
	if o.refuses(o.nodes[2], "second", "the pool second gives nothing new"); o.status(users, "first").Problem() != "" {
		t.Error("the problem of first stays")
	}
}

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// racks has nodes of two racks, each with a pool of its own, and one configuration for both.
func (a *api) racks(t *testing.T, users map[string]user) {
	o := a.newOverlapping(t, users)
	for i, name := range []string{"rack1", "rack2"} {
		o.pool(name, pool.Spec{Subnet: fmt.Sprintf("10.91.%d.0/24", i+1), NodeSelector: map[string]string{"rack": name}})
		o.label(fmt.Sprint("node", i+1), name)
	}
	t.Run("one configuration", func(t *testing.T) { o.oneConfiguration(t) })
	t.Run("an owner comes to another rack", func(t *testing.T) { o.ownerRoams(t) })
	t.Run("labels change", func(t *testing.T) { o.labelsChange(t) })
	t.Run("one subnet in two segments", func(t *testing.T) { a.segments(t, users) })
}

// label puts the node into the rack, "" for none.
func (o *overlapping) label(node, rack string) {
	o.t.Helper()
	var label any
	if rack != "" {
		label = rack
	}
	o.admin.must(o.t, http.MethodPatch, "/api/v1/nodes/"+node, m{"metadata": m{"labels": m{"rack": label}}}, nil)
}

const (
	ofRack    = `"pool": {"oneOf": ["rack1", "rack2"]}, "quarantine": "1s"`
	ofOwner   = ofRack + `, "sticky": "pod"`
	roaming   = ofOwner + `, "roam": true`
	rackOne   = "10.91.1."
	rackTwo   = "10.91.2."
	ownersPod = "web-0"
)

// attaches is an ADD on the node, which gets an address with that beginning.
func (o *overlapping) attaches(t *testing.T, node *member, args *skel.CmdArgs, prefix string) netip.Addr {
	t.Helper()
	node.socket(t)
	got, err := attach(t, args)
	if err != nil || !strings.HasPrefix(got, prefix) {
		t.Fatalf("%s: %s, %v, want an address of %s0/24\n%s", node.name, got, err, prefix, node.log.String())
	}
	return netip.MustParsePrefix(strings.Fields(got)[0]).Addr()
}

// refusesConfig expects code 7 and these words of an ADD on the node.
func (o *overlapping) refusesConfig(t *testing.T, node *member, args *skel.CmdArgs, want string) {
	t.Helper()
	node.socket(t)
	var coded *types.Error
	if got, err := attach(t, args); !errors.As(err, &coded) || coded.Code != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %s, %v, want code 7 and %s", node.name, got, err, want)
	}
}

// Pods of both racks start by one configuration. A node of no rack says why it takes none, and a node says so of a pool by its name.
func (o *overlapping) oneConfiguration(t *testing.T) {
	o.attaches(t, o.nodes[0], call("a1", "job-1", ofRack), rackOne)
	o.attaches(t, o.nodes[1], call("a2", "job-2", ofRack), rackTwo)
	o.attaches(t, o.nodes[1], call("a3", "job-3", ofRack), rackTwo)
	o.refusesConfig(t, o.nodes[2], call("a4", "job-4", ofRack), `of the pools in "oneOf" none is for this node: the pool rack1 is for nodes with rack=rack1, and node node3 has no label rack; the pool rack2 is for nodes`)
	o.refusesConfig(t, o.nodes[2], call("a5", "job-5", `"pool": "rack2"`), "the pool rack2 is for nodes with rack=rack2, and node node3 has no label rack")
	o.label("node3", "rack2")
	o.attaches(t, o.nodes[2], call("a6", "job-6", ofRack), rackTwo)
}

// An owner gets no address in the other rack before it may roam. Then its claim there ends, and the node gives the address back.
func (o *overlapping) ownerRoams(t *testing.T) {
	x := o.attaches(t, o.nodes[0], call("b1", ownersPod, ofOwner), rackOne)
	if err := ipam.Detached(t.Context(), (*ipam.Call).Del, call("b1", ownersPod, ofOwner)); err != nil {
		t.Fatal(err)
	}
	o.refusesConfig(t, o.nodes[1], call("b2", ownersPod, ofOwner),
		fmt.Sprintf(`the owner has %s of pool rack1, which is not for this node: let the pod run on nodes with rack=rack1, or set "roam": true`, x))
	y := o.attaches(t, o.nodes[1], call("b3", ownersPod, roaming), rackTwo)
	owner := acquisition(ownersPod).Owner
	if said, answer := o.admin.send(t, http.MethodGet, claims+"/"+pool.ClaimName("rack1", "eth0", owner), nil); answer.StatusCode != http.StatusNotFound {
		t.Errorf("the claim in rack1: %s", said)
	}
	var c pool.Claim
	o.admin.must(t, http.MethodGet, claims+"/"+pool.ClaimName("rack2", "eth0", owner), nil, &c)
	if c.Status.Address != y || c.Status.Active.Node != "node2" {
		t.Errorf("the claim in rack2: %+v, want %s", c.Status, y)
	}
	await(t, 30*time.Second, "node1 to end the reservation", func() bool {
		o.nodes[0].Reconcile(t.Context())
		l, err := o.nodes[0].store.Get(t.Context(), x)
		return errors.Is(err, lease.ErrNotLeased) || err == nil && l.State == lease.Quarantined
	})
}

// A node comes to the other rack while its agent runs. The agent sees it by itself.
func (o *overlapping) labelsChange(t *testing.T) {
	n := o.nodes[0]
	o.attaches(t, n, call("c1", "job-1", ofRack), rackOne)
	o.label("node1", "rack2")
	n.ahead.Add(int64(time.Minute)) // It looks twice a minute.
	await(t, 30*time.Second, "node1 to take the other pool", func() bool {
		g, err := n.store.Granted(t.Context())
		return err == nil && g.Chosen[pool.Choice("rack1", "rack2")] == "rack2"
	})
	o.attaches(t, n, call("c2", "job-2", ofRack), rackTwo)
	n.socket(t)
	for _, container := range []string{"a1", "c1"} {
		if err := ipam.Detached(t.Context(), (*ipam.Call).Del, call(container, "job", ofRack)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, 60*time.Second, "the blocks of rack1 to go back", func() bool {
		n.ahead.Add(int64(time.Minute))
		n.Reconcile(t.Context())
		for _, b := range blocksOf(t, o.admin, "rack1") {
			if len(b.Status.Holders) > 0 {
				return false
			}
		}
		return true
	})
}

// blocksOf are the blocks of the pool.
func blocksOf(t *testing.T, admin user, name string) []pool.Block {
	t.Helper()
	var list struct {
		Items []pool.Block `json:"items"`
	}
	admin.must(t, http.MethodGet, blocks+"?fieldSelector=spec.pool%3D"+name, nil, &list)
	return list.Items
}

// Two VLANs have one subnet. Each pool gives all of it. A third pool, of one of the two segments, stops.
func (a *api) segments(t *testing.T, users map[string]user) {
	o := a.newOverlapping(t, users)
	spec := pool.Spec{Subnet: "10.92.0.0/24", Ranges: []string{"10.92.0.8-10.92.0.15"}, Segment: "vlan7"}
	o.pool("first", spec)
	spec.Segment = "vlan8"
	o.pool("second", spec)
	if n := o.gives(o.nodes[0], "first"); n != 8 {
		t.Errorf("the first pool gives %d addresses", n)
	}
	o.has = map[netip.Addr]string{}
	if n := o.gives(o.nodes[1], "second"); n != 8 {
		t.Errorf("the second pool gives %d addresses", n)
	}
	time.Sleep(1100 * time.Millisecond) // The API counts the age of a pool in seconds.
	o.pool("third", spec)
	const why = "10.92.0.8-10.92.0.15 of it is in AddressPool second (10.92.0.8-10.92.0.15), too: make a pool of other addresses"
	o.refuses(o.nodes[2], "third", "the pool third gives nothing new: "+why)
	for name, want := range map[string]string{"first": "", "second": "", "third": why} {
		if s := o.status(users, name); s.Problem() != want {
			t.Errorf("the problem of %s is %q, want %q", name, s.Problem(), want)
		}
	}
}

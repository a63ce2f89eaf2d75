package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// The parties of the tests, each the store of a node.
var (
	node1 = pool.Party{Node: "node1", NodeUID: "uid-1", Network: "lan", Store: "store-1"}
	node2 = pool.Party{Node: "node2", NodeUID: "uid-2", Network: "lan", Store: "store-2"}
	node3 = pool.Party{Node: "node3", NodeUID: "uid-3", Network: "lan", Store: "store-3"}
	// impostor is node2 with the store of node3, and anew is node2 after its Node object was made anew.
	impostor = pool.Party{Node: "node2", NodeUID: "uid-2", Network: "lan", Store: "store-3"}
	anew     = pool.Party{Node: "node2", NodeUID: "anew", Network: "lan", Store: "store-2"}
)

// lan is the pool that the tests' blocks are of.
func lan() pool.Pool {
	return pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: "10.3.0.0/16", Gateway: "10.3.0.1", BlockSize: 4}}
}

// taken is a block of lan that the party has just taken.
func taken(index int64, by pool.Party) pool.Block {
	l, err := lan().Layout()
	if err != nil {
		panic(err)
	}
	b, _ := pool.NewBlock(l, index, by, "boot-1")
	return b
}

// claimOf is the claim of the pod with the name, which runs on the party's node.
func claimOf(by pool.Party, name string) pool.Claim {
	o := attachment.Pod{Namespace: "shop", Name: name}.Owner()
	return pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", o)}, Spec: pool.ClaimSpec{
		Pool: "lan", IfName: "eth0", Owner: o,
	}, Status: pool.ClaimStatus{Address: netip.MustParseAddr("10.3.0.5"), Epoch: 1, Active: pool.Place{Party: by, PodUID: "pod-1"}, Retain: "72h0m0s"}}
}

// refusal is a value at a path of an object, nil for none, and what the API says of it: nothing if it takes it.
type refusal struct {
	path  string
	value any
	want  string
}

// setIn sets the value at the path of an object.
func setIn(object m, path string, value any) m {
	keys := strings.Split(path, ".")
	o := object
	for _, key := range keys[:len(keys)-1] {
		next, is := o[key].(m)
		if !is {
			next = m{}
			o[key] = next
		}
		o = next
	}
	o[keys[len(keys)-1]] = value
	return object
}

// tryNew tries to make the object with each of the values in it.
func (a *api) tryNew(t *testing.T, path string, object func() m, all []refusal) {
	t.Helper()
	for _, r := range all {
		said, answer := user{a.http, adminToken}.send(t, http.MethodPost, path+"?dryRun=All&fieldValidation=Strict", setIn(object(), r.path, r.value))
		check(t, fmt.Sprintf("new: %s: %v", r.path, r.value), said, answer, http.StatusUnprocessableEntity, r.want)
	}
}

// tryChange makes the object, and tries to change it to have each of the values.
func (a *api) tryChange(t *testing.T, path string, object m, all []refusal) {
	t.Helper()
	admin := user{a.http, adminToken}
	admin.must(t, http.MethodPost, path, object, nil)
	at := path + "/" + object["metadata"].(m)["name"].(string)
	for _, r := range all {
		said, answer := admin.send(t, http.MethodPatch, at+"?dryRun=All&fieldValidation=Strict", setIn(m{}, r.path, r.value))
		check(t, fmt.Sprintf("changed: %s: %v", r.path, r.value), said, answer, http.StatusUnprocessableEntity, r.want)
	}
	admin.must(t, http.MethodDelete, at, m{}, nil)
}

// shownValue is the value in what the API says about a field.
var shownValue = regexp.MustCompile(`Invalid value: ("[^"]*"|-?[0-9]+): `)

// check asserts that the API has refused with that status and words, without values, or has not refused for want "".
func check(t tester, what, said string, answer *http.Response, status int, want string) {
	t.Helper()
	said = shownValue.ReplaceAllString(said, "Invalid value: ")
	switch {
	case want == "" && answer.StatusCode > 299:
		t.Errorf("%s: status %d: %s", what, answer.StatusCode, said)
	case want != "" && (answer.StatusCode != status || !strings.Contains(said, want)):
		t.Errorf("%s: status %d: %s\nwant status %d and %q", what, answer.StatusCode, said, status, want)
	}
}

func (a *api) poolSchema(t *testing.T) {
	object := func() m {
		p := lan()
		p.Metadata.Name = "new"
		p.Spec.Ranges, p.Spec.Exclude = []string{"10.3.0.10-10.3.0.250", "10.3.2.0/24", "10.3.9.9"}, []string{"10.3.0.77"}
		p.Spec.Routes = []pool.Route{{Dst: "0.0.0.0/0", GW: "10.3.0.1"}}
		return poolObject(p)
	}
	long := strings.Repeat("p", pool.MaxName)
	a.tryNew(t, pools, object, []refusal{
		{"spec.paused", true, ""},
		{"spec.nodeSelector", m{"topology.kubernetes.io/rack": "r1", "hall": ""}, ""},
		{"spec.nodeSelector", m{"rack": 1}, "spec.nodeSelector.rack in body must be of type string"},
		{"spec.segment", "vlan7.hall-b", ""},
		{"spec.segment", "VLAN 7", "spec.segment in body should match"},
		{"metadata.name", long, ""},
		{"metadata.name", long + "p", "the name of a pool has at most 200 characters"},
		{"spec", nil, "spec: Required value"},
		{"spec.subnet", "10.3.0.0/24", "spec.ranges: Invalid value: ranges must be parts of the subnet 10.3.0.0/24"},
		{"spec.subnet", "10.3.0.1/16", "spec.subnet: Invalid value: must be a network such as 10.3.0.0/24"},
		{"spec.subnet", "lan", "spec.subnet: Invalid value: must be a network such as 10.3.0.0/24"},
		{"spec.subnet", nil, "spec.subnet: Required value"},
		{"spec", m{"subnet": "0.0.0.0/0"}, "spec.subnet: Invalid value: must have no address of the reserved networks 0.0.0.0/8, 127.0.0.0/8,"},
		{"spec", m{"subnet": "127.0.0.0/8"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "169.254.7.0/24"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "224.0.0.0/4"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "240.0.0.0/4"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "::/0"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "::1/128"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "fe80::/64"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "ff00::/8"}, "must have no address of the reserved networks"},
		{"spec", m{"subnet": "fc00::/7"}, ""},
		{"spec", m{"subnet": "223.0.0.0/8"}, ""},
		{"spec.gateway", nil, ""},
		{"spec.gateway", "fe80::1", "spec.gateway: Invalid value: the gateway fe80::1 must be an address of the subnet 10.3.0.0/16"},
		{"spec.gateway", "10.4.0.1", "spec.gateway: Invalid value: the gateway 10.4.0.1 must be an address of the subnet 10.3.0.0/16"},
		{"spec.gateway", "", "spec.gateway: Invalid value: must be an address of the subnet"},
		{"spec.ranges", []string{}, "spec.ranges in body should have at least 1 items"},
		{"spec.ranges", []string{"10.3.0.1/24"}, "spec.ranges[0]: Invalid value: must be an address, a network, or two addresses"},
		{"spec.ranges", []string{"10.3.0.5", "10.3.0.1-10.3.0.2-10.3.0.3"}, "spec.ranges[1]: Invalid value: must be an address, a network, or two addresses"},
		{"spec.ranges", []string{"10.3.0.1-fd00::1"}, "spec.ranges[0]: Invalid value: must be an address, a network, or two addresses"},
		{"spec.ranges", []string{"10.3.0.1-10.4.0.1"}, "spec.ranges: Invalid value: ranges must be parts of the subnet 10.3.0.0/16"},
		{"spec.ranges", []string{"10.0.0.0/8"}, "spec.ranges: Invalid value: ranges must be parts of the subnet 10.3.0.0/16"},
		{"spec.ranges", []string{"10.3.0.9-10.3.0.10"}, ""},
		{"spec.ranges", []string{"10.3.0.9-10.3.0.9"}, ""},
		{"spec.ranges", []string{"10.3.0.10-10.3.0.9"}, "AddressPool new: invalid spec.ranges[0] 10.3.0.10-10.3.0.9: must have the first address before the last one"},
		{"spec.ranges", []string{"10.3.0.5", "10.3.1.0-10.3.0.255"}, "AddressPool new: invalid spec.ranges[1] 10.3.1.0-10.3.0.255: must have the first address before the last one"},
		{"spec.ranges", []string{"10.3.0.5", "10.3.0.6", "10.3.0.1-10.3.0.4"}, ""},
		{"spec.ranges", []string{"10.3.0.5", "10.3.0.6", "10.3.0.1-10.3.0.5"}, "AddressPool new: invalid spec.ranges[2] 10.3.0.1-10.3.0.5: must have no address of a range before it"},
		{"spec.ranges", []string{"10.3.0.5", "10.3.0.5"}, "must have no address of a range before it"},
		{"spec.ranges", []string{"10.3.0.0/24", "10.3.1.0/24", "10.3.2.0-10.3.2.255"}, ""},
		{"spec.ranges", []string{"10.3.0.0/24", "10.3.0.128/25"}, "must have no address of a range before it"},
		{"spec.ranges", []string{"10.3.0.100-10.3.1.0", "10.3.1.0/24"}, "must have no address of a range before it"},
		{"spec.ranges", []string{"10.3.1.0/24", "10.3.0.100-10.3.2.5"}, "must have no address of a range before it"},
		{"spec.ranges", many(64, 0), ""},
		{"spec.ranges", many(64, 63), "must have no address of a range before it"},
		{"spec.exclude", []string{"10.3.0.1-10.3.0.9", "10.3.5.0/24", "10.9.9.9"}, ""},
		{"spec.exclude", []string{"some"}, "spec.exclude[0]: Invalid value: must be an address, a network, or two addresses"},
		{"spec.routes", []m{{"gw": "10.3.0.1"}}, "spec.routes[0].dst: Required value"},
		{"spec.routes", []m{{"dst": "10.8.0.0"}}, "spec.routes[0].dst: Invalid value: must be a network such as 10.8.0.0/16"},
		{"spec.routes", []m{{"dst": "10.8.0.0/16", "gw": "x"}}, "spec.routes[0].gw: Invalid value: must be an address"},
		{"spec.blockSize", 0, "spec.blockSize in body should be greater than or equal to 1"},
		{"spec.blockSize", 65, "spec.blockSize in body should be less than or equal to 64"},
		{"spec.blockSize", nil, ""},
		{"spec", m{"subnet": "fd00:3::/64", "gateway": "fd00:3::1", "ranges": []string{"fd00:3::10-fd00:3::ffff"}}, ""},
		{"spec", m{"subnet": "fd00:3::/64", "gateway": "fe80::1"}, ""},
		{"spec", m{"subnet": "fd00:3::/64", "ranges": []string{"fd00:3::a-fd00:3::10", "fd00:3::-fd00:3::9", "fd00:3::1:0:0:0-fd00:3::1:0:0:f0", "FD00:3:0:0:0000:2::-fd00:3::2:0:1"}}, ""},
		{"spec", m{"subnet": "fd00:3::/64", "ranges": []string{"fd00:3::10-fd00:3::a"}}, "AddressPool new: invalid spec.ranges[0] fd00:3::10-fd00:3::a: must have the first address before the last one"},
		{"spec", m{"subnet": "fd00:3::/64", "ranges": []string{"fd00:3::1:0:0-fd00:3::ffff:ffff"}}, "AddressPool new: invalid spec.ranges[0] fd00:3::1:0:0-fd00:3::ffff:ffff: must have the first address before the last one"},
		{"spec", m{"subnet": "fd00:3::/64", "ranges": []string{"fd00:3::10-fd00:3::1:0", "fd00:3::/112"}}, "must have no address of a range before it"},
		{"spec", m{"subnet": "fd00:3::/64", "ranges": []string{"fd00:3::10-fd00:3::1:0", "fd00:3::ffff"}}, "must have no address of a range before it"},
		{"spec", m{"subnet": "fd00:3::/64", "gateway": "169.254.0.1"}, "the gateway 169.254.0.1 must be an address of the subnet fd00:3::/64"},
	})
	a.tryChange(t, pools, object(), []refusal{
		{"spec.ranges", []string{"10.3.0.10-10.3.0.250", "10.3.2.0/24", "10.3.9.9", "10.3.9.10"}, ""},
		{"spec.ranges", []string{"10.3.9.10", "10.3.0.10-10.3.0.250", "10.3.2.0/24", "10.3.9.9"}, "ranges can be added at the end only"},
		{"spec.ranges", []string{"10.3.0.10-10.3.0.250", "10.3.2.0/24"}, "ranges can be added at the end only"},
		{"spec.ranges", []string{"10.3.0.10-10.3.0.251", "10.3.2.0/24", "10.3.9.9"}, "ranges can be added at the end only"},
		{"spec.ranges", nil, "spec.ranges: Invalid value: without ranges, the pool is the whole subnet, and gets none later; with ranges, it always has some"},
		{"spec.subnet", "10.0.0.0/8", "spec.subnet: Invalid value: subnet never changes"},
		{"spec.blockSize", 8, "spec.blockSize: Invalid value: blockSize never changes"},
		{"spec.nodeSelector", m{"rack": "r1"}, ""},
		{"spec.segment", "vlan7", "spec.segment: Invalid value: segment never changes: make another pool"},
		{"spec.exclude", []string{"10.3.0.78"}, ""},
		{"spec.gateway", "10.3.0.2", ""},
		{"spec.paused", true, ""},
	})
	p := lan()
	p.Metadata.Name, p.Spec.Ranges = "many", many(64, 0)
	last := many(64, 0)
	last[63] = "10.3.9.9"
	a.tryChange(t, pools, poolObject(p), []refusal{
		{"spec.ranges", last, "AddressPool many: spec.ranges[63] stays 10.3.163.200-10.3.163.255: ranges can be added at the end only"},
		{"spec.ranges", many(63, 0), "AddressPool many: spec.ranges[63] stays 10.3.163.200-10.3.163.255"},
	})
	p.Spec = pool.Spec{Subnet: "fd00:3::/32", BlockSize: 4, Ranges: many6(63)}
	a.tryChange(t, pools, poolObject(p), []refusal{{"spec.ranges", many6(64), ""}})
	a.corrections(t)
	p = lan()
	p.Metadata.Name, p.Spec.BlockSize, p.Spec.Segment = "whole", 0, "vlan7"
	a.tryChange(t, pools, poolObject(p), []refusal{
		{"spec.ranges", []string{"10.3.0.10-10.3.0.250"}, "without ranges, the pool is the whole subnet, and gets none later"},
		{"spec.segment", "vlan7", ""},
		{"spec.segment", "vlan8", "spec.segment: Invalid value: segment never changes: make another pool"},
		{"spec.segment", nil, "spec.segment: Invalid value: segment never changes: make another pool"},
		{"spec.blockSize", 16, ""},
		{"spec.blockSize", 17, "spec.blockSize: Invalid value: blockSize never changes"},
	})
}

// rangesPolicy waits until the policy of ranges is in force, or is not.
func (a *api) rangesPolicy(t *testing.T, is bool) {
	t.Helper()
	p := lan()
	p.Metadata.Name, p.Spec.Ranges = "never-made", []string{"10.3.0.9-10.3.0.8"}
	await(t, 20*time.Second, "the policy of ranges", func() bool {
		_, answer := user{a.http, adminToken}.send(t, http.MethodPost, pools+"?dryRun=All", poolObject(p))
		return (answer.StatusCode == http.StatusUnprocessableEntity) == is
	})
}

// corrections shows what people can change in a pool whose ranges are wrong: all from the first wrong one on. What the pool can have given,
// stays.
func (a *api) corrections(t *testing.T) {
	const binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	admin := user{a.http, adminToken}
	var ranges m
	admin.must(t, http.MethodGet, binding+"/relink-pools-ranges", nil, &ranges)
	admin.must(t, http.MethodDelete, binding+"/relink-pools-ranges", m{}, nil)
	a.rangesPolicy(t, false)
	wrong := map[string][]string{
		"swapped": {"10.3.0.16-10.3.0.31", "10.3.0.48-10.3.0.40", "10.3.0.64-10.3.0.67"},
		"first":   {"10.3.0.31-10.3.0.16", "10.3.0.40-10.3.0.48"},
		"doubled": {"10.3.1.0/24", "10.3.2.0/24", "10.3.2.0-10.3.2.9", "10.3.2.8"},
	}
	for name, ranges := range wrong {
		p := lan()
		p.Metadata.Name, p.Spec.Ranges = name, ranges
		admin.must(t, http.MethodPost, pools, poolObject(p), nil)
		defer deletePool(t, admin, name)
	}
	ranges["metadata"] = m{"name": "relink-pools-ranges"}
	admin.must(t, http.MethodPost, binding, ranges, nil) // Not all of them: other tests have removed one.
	a.rangesPolicy(t, true)
	for _, try := range []struct {
		name   string
		ranges []string
		want   string
	}{
		{"swapped", []string{"10.3.0.16-10.3.0.31", "10.3.0.40-10.3.0.48", "10.3.0.64-10.3.0.67"}, ""},
		{"swapped", []string{"10.3.0.16-10.3.0.31", "10.3.0.70"}, ""},
		{"swapped", []string{"10.3.0.16-10.3.0.31"}, ""},
		{"swapped", []string{"10.3.0.16-10.3.0.32", "10.3.0.40-10.3.0.48"}, "AddressPool swapped: spec.ranges[0] stays 10.3.0.16-10.3.0.31: ranges can be added at the end only"},
		{"swapped", []string{"10.3.0.40-10.3.0.48", "10.3.0.16-10.3.0.31"}, "AddressPool swapped: spec.ranges[0] stays 10.3.0.16-10.3.0.31"},
		{"swapped", []string{"10.3.0.16-10.3.0.31", "10.3.0.48-10.3.0.40", "10.3.0.64-10.3.0.67", "10.3.0.70"}, "AddressPool swapped: invalid spec.ranges[1] 10.3.0.48-10.3.0.40: must have the first address before the last one"},
		{"first", []string{"10.3.0.16-10.3.0.31", "10.3.0.40-10.3.0.48"}, ""},
		{"first", []string{"10.3.9.9"}, ""},
		{"doubled", []string{"10.3.1.0/24", "10.3.2.0/24", "10.3.3.0-10.3.3.9"}, ""},
		{"doubled", []string{"10.3.1.0/24", "10.3.2.0/24", "10.3.2.0-10.3.2.9"}, "AddressPool doubled: invalid spec.ranges[2] 10.3.2.0-10.3.2.9: must have no address of a range before it"},
		{"doubled", []string{"10.3.1.0/24", "10.3.2.10-10.3.2.255", "10.3.2.0-10.3.2.9"}, "AddressPool doubled: spec.ranges[1] stays 10.3.2.0/24"},
		{"doubled", []string{"10.3.1.0/24"}, "AddressPool doubled: spec.ranges[1] stays 10.3.2.0/24"},
	} {
		said, answer := admin.send(t, http.MethodPatch, pools+"/"+try.name+"?dryRun=All", m{"spec": m{"ranges": try.ranges}})
		check(t, fmt.Sprint(try.name, " becomes ", try.ranges), said, answer, http.StatusUnprocessableEntity, try.want)
	}
	said, answer := admin.send(t, http.MethodPatch, pools+"/swapped?dryRun=All", m{"spec": m{"paused": true}})
	check(t, "what else the wrong one gets", said, answer, http.StatusUnprocessableEntity, "")
}

// many are so many ranges, of which the one with that index has an address of the first one.
func many(n, double int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.3.%d.%d-10.3.%d.%d", 100+i, 200, 100+i, 255))
	}
	if double > 0 {
		all[double] = "10.3.100.255-10.3.101.0"
	}
	return all
}

// many6 are so many long ranges of IPv6.
func many6(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("fd00:3:1000:2000:3000:4000:%x:1111-fd00:3:1000:2000:3000:4000:%x:ffff", 0x5000+i, 0x5000+i))
	}
	return all
}

func (a *api) blockSchema(t *testing.T) {
	holder := func(id, store string) m {
		return m{"id": id, "node": "node1", "network": "lan", "store": store, "epoch": 1}
	}
	object := func() m { return blockObject(taken(7, node1)) }
	var many []m
	for i := range 65 {
		many = append(many, m{"node": "node1", "network": "lan", "store": fmt.Sprint(i), "count": 1})
	}
	a.tryNew(t, blocks, object, []refusal{
		{"status.want", many[:64], ""},
		{"status.want", many, "status.want: Too many: 65: must have at most 64 items"},
		{"status.unproven", []string{"10.3.0.29"}, ""},
		{"status.unproven", []string{"010.3.0.29"}, "status.unproven[0]: Invalid value: must be an IP address in its short form"},
		{"metadata.name", "lan-8", "the name must be spec.pool, a hyphen and spec.index"},
		{"spec.index", 8, "the name must be spec.pool, a hyphen and spec.index"},
		{"spec.index", -1, "spec.index in body should be greater than or equal to 0"},
		{"spec.pool", "wan", "the name must be spec.pool, a hyphen and spec.index"},
		{"spec.first", "fd00:0::1", "spec.first: Invalid value: must be an IP address in its short form"},
		{"status.epoch", 0, "status.epoch in body should be greater than or equal to 1"},
		{"status.epoch", int64(1)<<62 + 1024, "status.epoch in body should be less than or equal to"},
		{"status.addresses", "", "status.addresses in body should be at least 1 chars long"},
		{"status.addresses", strings.Repeat("A", 65), "status.addresses: Too long"},
		{"status.addresses", "AA?A", "status.addresses in body should match"},
		{"status.addresses", "-.=-", ""},
		{"status.addresses", "ABA-", "status.addresses: Invalid value: each character of addresses must be the id of a holder, '.', '-' or '='"},
		{"status.holders", nil, "status.addresses: Invalid value: each character of addresses must be the id of a holder, '.', '-' or '='"},
		{"status.holders", []m{holder("A", "s"), holder("B", "t")}, ""},
		{"status.holders", []m{holder("A", "s"), holder("A", "t")}, `status.holders[1]: Duplicate value: {"id":"A"}`},
		{"status.holders", []m{holder("A", "s"), holder("B", "s")}, "status.holders: Invalid value: each store of a node is one holder only"},
		{"status.holders", []m{holder("A", "s"), holder(".", "t")}, "status.holders[1].id in body should match"},
		{"status.holders", []m{holder("A", "s"), holder("BC", "t")}, "status.holders[1].id: Too long"},
		{"status.holders", []m{holder("A", "")}, "status.holders[0].store in body should be at least 1 chars long"},
		{"status.holders", []m{{"id": "A"}}, "status.holders[0].store: Required value"},
	})
	a.tryChange(t, blocks, object(), []refusal{
		{"spec.pool", "wan", "spec.pool: Invalid value: pool never changes"},
		{"spec.poolUID", "x", "spec.poolUID: Invalid value: poolUID never changes"},
		{"spec.index", 8, "spec.index: Invalid value: index never changes"},
		{"spec.node", "node2", "spec.node: Invalid value: node never changes"},
		{"spec.first", "10.3.0.1", "spec.first: Invalid value: first never changes"},
		{"spec.last", "10.3.0.1", "spec.last: Invalid value: last never changes"},
		{"status", m{"addresses": "A...", "epoch": 4}, ""},
		{"status", m{"addresses": "A..", "epoch": 4}, "status.addresses: Invalid value: the number of addresses never changes"},
		{"status.addresses", "A...", "status.epoch: Invalid value: epoch must grow with each change of addresses"},
		{"status.epoch", 9, ""},
		{"status.want", many[:1], ""},
	})
	old := taken(7, node1)
	old.Status.Epoch = 5
	a.tryChange(t, blocks, blockObject(old), []refusal{{"status.epoch", 4, "status.epoch: Invalid value: epoch never gets smaller"}})
}

func (a *api) claimSchema(t *testing.T) {
	object := func() m { return claimObject(claimOf(node1, "web")) }
	place := func(store string) m { return m{"node": "node2", "network": "lan", "store": store} }
	a.tryNew(t, claims, object, []refusal{
		{"status.active", place("store-2"), ""},
		{"status.active", place(""), "status.active.store in body should be at least 1 chars long"},
		{"status.active", nil, "status.active: Required value"},
		{"status.retain", nil, ""},
		{"status.retain", "1h30m", ""},
		{"status.retain", "3 days", "status.retain in body should match"},
		{"status.address", "10.3.0.5/16", "status.address: Invalid value: must be an IP address in its short form"},
		{"spec.ifName", "eth0/0", "spec.ifName in body should match"},
		{"spec.ifName", "an-interface-too-long", "spec.ifName: Too long"},
		{"spec.pool", "wide", "the name must be spec.pool, a hyphen and 24 hex digits"},
		{"spec.owner.ordinal", 3, ""},
		{"spec.owner.ordinal", -1, "spec.owner.ordinal in body should be greater than or equal to 0"},
		{"status.epoch", 0, "status.epoch in body should be greater than or equal to 1"},
	})
	old := claimOf(node1, "web")
	old.Status.Epoch = 5
	a.tryChange(t, claims, claimObject(old), []refusal{
		{"spec.pool", "wan", "spec.pool: Invalid value: pool never changes"},
		{"spec.ifName", "eth1", "spec.ifName: Invalid value: ifName never changes"},
		{"spec.owner.uid", "x", "spec.owner: Invalid value: owner never changes"},
		{"status.epoch", 4, "status.epoch: Invalid value: epoch never gets smaller"},
		{"status.active", place("store-2"), "status.epoch: Invalid value: epoch must grow when the address moves to another store"},
		{"status", m{"active": place("store-2"), "epoch": 6}, ""},
		{"status.active.podUID", "pod-2", ""},
		{"status.address", "10.3.0.6", ""},
	})
}

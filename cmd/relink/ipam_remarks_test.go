package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// A node that was declared dead while it ran has pods with addresses that others may give. list and usage name them.
func TestLostAddressesAreNamed(t *testing.T) {
	dir := t.TempDir()
	store, err := lease.Open(dir, "wan")
	if err != nil {
		t.Fatal(err)
	}
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared", UID: "u"}, Spec: pool.Spec{Subnet: "10.0.0.0/8", Ranges: []string{"10.4.0.0-10.4.0.255"}}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	has := func(addresses string) {
		g := pool.Grant{Pool: "shared", PoolUID: "u", Block: "b", Epoch: 1, First: netip.MustParseAddr("10.4.0.0"), Addresses: addresses}
		if err := store.PutGrants(t.Context(), l, []pool.Grant{g}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.SetPools(t.Context(), []string{"shared"}); err != nil {
		t.Fatal(err)
	}
	has("++++++++++++++++")
	if err := store.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		r := lease.Request{Attachment: attachment.Key{Network: "wan", ContainerID: fmt.Sprint("c", i), IfName: "eth0"}, Pools: []string{"shared"}, Probes: true}
		if _, err := store.Allocate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for addresses, want := range map[string]string{
		"++++++++++++++++": "",
		"+.++++++++++++++": "pods of network wan hold 10.4.0.1 of the pool shared, and this node does not have that: other nodes may give it. Delete these pods, unless a virtual machine is on its way to this node\n",
		"................": "pods of network wan hold 10.4.0.0, 10.4.0.1, 10.4.0.2, 10.4.0.3, 10.4.0.4, 10.4.0.5, 10.4.0.6, 10.4.0.7, and 1 more of the pool shared, ",
	} {
		has(addresses)
		for _, verb := range []string{"usage", "list"} {
			code, out := runsTo("ipam", "--data-dir", dir, verb)
			if code != cli.OK || !strings.Contains(out, want) || want == "" && strings.Contains(out, "pods of") {
				t.Errorf("%s of %s: status %d\n%s\nwant %s", verb, addresses, code, out, want)
			}
		}
	}
}

// A network had ranges of its own before it got a pool. Nobody has taken its pods' addresses over.
func TestAddressesOfRangesBeforeThePool(t *testing.T) {
	dir := t.TempDir()
	store, err := lease.Open(dir, "wan")
	if err != nil {
		t.Fatal(err)
	}
	set := lease.RangeSet{{Subnet: netip.MustParsePrefix("10.4.0.0/24"), Span: lease.Span{First: netip.MustParseAddr("10.4.0.7"), Last: netip.MustParseAddr("10.4.0.9")}}}
	r := lease.Request{Attachment: attachment.Key{Network: "wan", ContainerID: "c1", IfName: "eth0"}, Sets: []lease.RangeSet{set}}
	if _, err := store.Allocate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared", UID: "u"}, Spec: pool.Spec{Subnet: "10.4.0.0/24"}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.SetPools(t.Context(), []string{"shared"}), store.PutGrants(t.Context(), l, nil)); err != nil {
		t.Fatal(err)
	}
	const want = "pods of network wan hold 10.4.0.7 of the pool shared, and this node does not have that"
	if code, out := runsTo("ipam", "--data-dir", dir, "usage"); code != cli.OK || !strings.Contains(out, want) {
		t.Errorf("status %d\n%s\nwant %s", code, out, want)
	}
}

// Whose an address of a pool is that this node does not have, kubectl relink tells.
func TestShowNamesWhoKnowsAnAddressOfAPool(t *testing.T) {
	dir := t.TempDir()
	store, err := lease.Open(dir, "wan")
	if err != nil {
		t.Fatal(err)
	}
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared", UID: "u"}, Spec: pool.Spec{Subnet: "10.4.0.0/24"}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	r := lease.Request{Attachment: attachment.Key{Network: "wan", ContainerID: "c1", IfName: "eth0"}, Pools: []string{"shared"}}
	g := pool.Grant{Pool: "shared", PoolUID: "u", Block: "b", Epoch: 1, First: netip.MustParseAddr("10.4.0.1"), Addresses: "++"}
	if err := errors.Join(store.SetPools(t.Context(), []string{"shared"}), store.PutGrants(t.Context(), l, []pool.Grant{g}), store.Confirm(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Allocate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	const want = "relink: 10.4.0.9 is never given in network wan: it is of pool shared, and not granted to this node: run the command on the node that has it, which kubectl relink show 10.4.0.9 names\n"
	if code, out := runsTo("ipam", "--data-dir", dir, "show", "10.4.0.9"); code != cli.Differs || out != want {
		t.Errorf("status %d\n%s\nwant %s", code, out, want)
	}
}

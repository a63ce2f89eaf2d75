package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// gone runs the controller with its watches and its rights. A node dies, is declared dead and is deleted: its owner keeps its address until the
// owner is deleted, and the pool ends when it is deleted.
func (a *api) gone(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.37.0.0/28")
	admin, client := users["admin"], a.client(t, "controller", users["controller"])
	api, log := kube.NewPools(client), slog.New(slog.DiscardHandler)
	keep := controller.New(controller.Config{
		API: api, Log: log, Owners: kube.NewOwners(client, "", log),
		Watch: func(ctx context.Context, changed func(string, bool)) controller.Cache {
			return api.WatchAll(ctx, log, changed)
		},
	})
	keep.SetClock(fastClock())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { keep.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()

	var node metav1.PartialObjectMetadata
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": "node9"}}, &node)
	web := a.setOf(t, "StatefulSet.apps", "default", "web", m{"replicas": 1})
	dead := pool.Party{Node: "node9", NodeUID: string(node.UID), Network: "lan", Store: "store-9"}
	var p pool.Pool
	admin.must(t, http.MethodPatch, pools+"/lan", m{"metadata": m{"finalizers": []string{pool.Finalizer}}}, &p)
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pool.NewBlock(l, 1, dead, "boot-9")
	admin.must(t, http.MethodPost, blocks, blockObject(b.HandOver(dead, []int{3}, node1)), nil)
	o := attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: string(web.uid), Ordinal: attachment.OrdinalOf(0)}
	c := pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", o)}, Spec: pool.ClaimSpec{Pool: "lan", IfName: "eth0", Owner: o},
		Status: pool.ClaimStatus{Address: b.Address(1), Epoch: 1, Active: pool.Place{Party: dead}}}
	admin.must(t, http.MethodPost, claims, claimObject(c), nil)
	has := func(want string) {
		t.Helper()
		var b pool.Block
		await(t, 30*time.Second, "lan-1 to be "+want, func() bool {
			admin.must(t, http.MethodGet, blocks+"/lan-1", nil, &b)
			return b.Status.Addresses+" "+b.Status.Nodes == want
		})
	}
	a.taint(t, users, "node9", true)
	has("AAAB node9 3 (fenced), node1 1")
	admin.must(t, http.MethodDelete, "/api/v1/nodes/node9", m{}, nil)
	has(".=.B node1 1")
	await(t, 30*time.Second, "the counts", func() bool {
		return a.row(t, pools+"/lan", "Ready", "Reason", "Taken", "Granted") == "True Available 1 2"
	})

	overlap := func(want pool.Reason) {
		t.Helper()
		await(t, 30*time.Second, string(want), func() bool {
			admin.must(t, http.MethodGet, pools+"/lan", nil, &p)
			return p.Status.Condition(pool.Overlapping).Reason == want
		})
	}
	admin.must(t, http.MethodPost, pools, poolObject(pool.Pool{Metadata: pool.Meta{Name: "young"}, Spec: pool.Spec{Subnet: "10.37.0.0/29", BlockSize: 4}}), nil)
	overlap(pool.YoungerPool)
	await(t, 30*time.Second, "the younger one to stop", func() bool { return a.row(t, pools+"/young", "Ready", "Reason") == "False OlderPool" })
	admin.must(t, http.MethodDelete, pools+"/young", m{}, nil)
	overlap(pool.NoOtherPool)

	admin.must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"exclude": []string{"10.37.0.14"}}}, nil) // It looks at the owner, who lives.
	await(t, 30*time.Second, "a look", func() bool {
		admin.must(t, http.MethodGet, pools+"/lan", nil, &p)
		return p.Status.ObservedGeneration == p.Metadata.Generation
	})
	has(".=.B node1 1")
	a.delete(t, web)
	looks := 0
	await(t, 30*time.Second, "two looks at the owner, ten minutes apart", func() bool {
		looks++
		admin.must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"exclude": []string{"10.37.0.13", "10.37.0.14"}[:looks%2]}}, nil)
		var b pool.Block
		admin.must(t, http.MethodGet, blocks+"/lan-1", nil, &b)
		return b.Status.Addresses == "...B"
	})
	has("...B node1 1")
	if _, err := api.Claim(t.Context(), c.Metadata.Name); !errors.Is(err, pool.ErrRefused) && !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("the claim: %v", err)
	}

	said, answer := admin.send(t, http.MethodDelete, pools+"/lan", m{})
	check(t, "a pool in use", said, answer, http.StatusForbidden, "nodes have addresses of AddressPool lan")
	admin.must(t, http.MethodPatch, pools+"/lan", m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": "lan"}}}, nil)
	admin.must(t, http.MethodDelete, pools+"/lan", m{}, nil)
	await(t, 30*time.Second, "people to see the end", func() bool {
		return strings.HasPrefix(a.row(t, pools+"/lan", "Ready", "Reason", "Message"), "False Deleted it is being deleted, and waits for the end of 1 blocks")
	})
	admin.must(t, http.MethodGet, blocks+"/lan-1", nil, &b)
	admin.must(t, http.MethodPut, blocks+"/lan-1", blockObject(b.Release(node1, []int{3}, nil)), nil) // The node leaves what is unproven to the controller.
	await(t, 30*time.Second, "the pool to go", func() bool {
		_, answer := admin.send(t, http.MethodGet, pools+"/lan", nil)
		return answer.StatusCode == http.StatusNotFound
	})
}

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
)

// The controller counts again and again. An agent knows that from a change of the spec and from a recovery: only these are for it.
func (a *api) statusIsNoChange(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.38.0.0/24")
	pools := a.poolsOf(t, "node1", users["node1"])
	counts := a.poolsOf(t, "controller", users["controller"])
	changes := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go pools.Watch(ctx, "node1", slog.New(slog.DiscardHandler), pool.Handler{
		PoolChanged: func(before, after *pool.Pool) {
			switch {
			case before == nil:
				changes <- "new"
			case after == nil:
				changes <- "gone"
			case before.Metadata.Generation != after.Metadata.Generation:
				changes <- "spec"
			case (before.Status.Recovery == nil) != (after.Status.Recovery == nil):
				changes <- "recovery"
			default:
				changes <- fmt.Sprint("status ", after.Status.Sequence)
			}
		},
		BlockChanged: func(_, after *pool.Block) { changes <- "block " + after.Metadata.Name },
		NodeChanged:  func(pool.Node) {},
		APIDown:      func() {}, // An API that was restarted before has closed the connection.
	})
	next := func() string {
		select {
		case c := <-changes:
			return c
		case <-time.After(10 * time.Second):
			return "none"
		}
	}
	if first := next(); first != "new" {
		t.Fatalf("the first change is %s", first)
	}
	one := func() pool.Pool {
		all, err := counts.Pools(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d pools, %v", len(all), err)
		}
		return all[0]
	}
	p := one()
	p.Status = pool.Status{Sequence: 7, Granted: 1}
	if _, err := counts.UpdatePoolStatus(ctx, p); err != nil {
		t.Fatal(err)
	}
	if c := next(); c != "status 7" {
		t.Errorf("a status: %s", c)
	}
	users["admin"].must(t, http.MethodPatch, "/apis/"+pool.Group+"/"+pool.Version+"/addresspools/lan", m{"spec": m{"exclude": []string{"10.38.0.9"}}}, nil)
	if c := next(); c != "spec" {
		t.Errorf("a spec: %s", c)
	}
	if _, err := counts.UpdatePoolStatus(ctx, one().WithRecovery(&pool.Recovery{Message: "lost"})); err != nil {
		t.Fatal(err)
	}
	if c := next(); c != "recovery" {
		t.Errorf("a recovery: %s", c)
	}
}

// shown looks at what kubectl shows of pools and blocks, and at the events of a pool: the API takes what the controller writes.
func (a *api) shown(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.39.0.0/28")
	admin := users["admin"]
	var p pool.Pool
	admin.must(t, http.MethodGet, pools+"/lan", nil, &p)
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	one := node1
	one.NodeUID = "" // The Node of that name exists.
	b, _ := pool.NewBlock(l, 1, one, "boot-1")
	admin.must(t, http.MethodPost, blocks, blockObject(then(gives(one, 3), fenced(one))(b.HandOver(one, []int{2}, node2))), nil)
	recorder := kube.NewRecorder(a.client(t, "controller", users["controller"]), "relink-controller", "", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go recorder.Run(ctx)
	keep := a.controller(t, users)
	keep.Event = recorder.RecordPool
	look := func(want string) {
		t.Helper()
		if err := keep.Reconcile(ctx); err != nil {
			t.Fatal(err)
		}
		if got := a.row(t, pools+"/lan", "Ready", "Reason", "Recovering", "Taken", "Granted"); got != want {
			t.Errorf("kubectl shows %s, want %s", got, want)
		}
	}
	look("True Available False 1 3")
	if got := a.row(t, blocks+"/lan-1", "Pool", "First", "Nodes", "Addresses"); got != "lan 10.39.0.5 node1 2 (fenced), node2 1 AAB." {
		t.Errorf("kubectl shows %s", got)
	}
	for _, recovery := range []any{m{"message": "lost"}, nil} {
		admin.must(t, http.MethodPatch, pools+"/lan/status", m{"status": m{"recovery": recovery}}, nil)
		look(map[bool]string{true: "True Available False 1 3", false: "False StateLost True 1 3"}[recovery == nil])
	}
	said, answer := admin.send(t, http.MethodPatch, pools+"/lan/status?dryRun=All", m{"status": m{"conditions": []m{{
		"type": "Ready", "status": "False", "reason": "Other", "message": "x", "lastTransitionTime": "2030-01-01T00:00:00Z",
	}}}})
	check(t, "a reason that is none", said, answer, http.StatusUnprocessableEntity, `status.conditions[0].reason: Unsupported value: "Other"`)
	await(t, 20*time.Second, "the events", func() bool {
		var all struct {
			Items []struct{ Type, Reason, Message string }
		}
		admin.must(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=AddressPool,involvedObject.uid="+p.Metadata.UID, nil, &all)
		text := fmt.Sprint(all.Items)
		return strings.Contains(text, "{Warning StateLost the nodes say what they have, and ") && strings.Contains(text, "{Normal StateKnown the API knows what nodes have}")
	})
}

// row is what kubectl shows of an object in the columns.
func (a *api) row(t *testing.T, path string, columns ...string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+apiAddress+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	r.Header.Set("Authorization", "Bearer "+adminToken)
	answer, err := a.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(answer.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%d rows, %v", len(table.Rows), err)
	}
	cells := map[string]string{}
	for i, c := range table.ColumnDefinitions {
		cells[c.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	var text []string
	for _, c := range columns {
		text = append(text, cells[c])
	}
	return strings.Join(text, " ")
}

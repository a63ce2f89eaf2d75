package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// tellEnv names a file that stands for relink-agent: what the container runtime and the Kubernetes API answer.
const tellEnv = "AGENT_TELLS"

// agentTells is an agent that answers from a file.
type agentTells struct {
	Runtime []sandbox.RuntimeSandbox
	Owners  []owner.Judgement
	// RuntimeFails is why the runtime does not answer.
	RuntimeFails string
}

func tellingAgent(path string) func(context.Context, *audit.Sources) {
	return func(_ context.Context, sources *audit.Sources) {
		b, err := os.ReadFile(path)
		var a agentTells
		if err == nil {
			err = json.Unmarshal(b, &a)
		}
		if err != nil {
			panic(err)
		}
		sources.Runtime, sources.Judge = a, a
	}
}

// Sandboxes are the runtime's.
func (a agentTells) Sandboxes(context.Context) ([]sandbox.RuntimeSandbox, error) {
	if a.RuntimeFails != "" {
		return nil, errors.New(a.RuntimeFails)
	}
	return a.Runtime, nil
}

// Judge says what the file says. The API does not answer for other owners.
func (a agentTells) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	for _, o := range owners {
		j := owner.Judgement{Owner: o, Standing: owner.Unknown, Reason: "HTTP status 503"}
		for _, told := range a.Owners {
			if told.Owner == o {
				j = told
			}
		}
		j.Cluster = "u-here"
		all = append(all, j)
	}
	return all
}

// reserved NETWORK ADDRESS NAMESPACE/NAME leaves the address reserved for a StatefulSet.
func cmdReserved(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: reserved NETWORK ADDRESS NAMESPACE/NAME")
	}
	store, err := lease.Open(ts.Getenv("RELINK_IPAM_DIR"), args[0])
	ts.Check(err)
	namespace, name, _ := strings.Cut(args[2], "/")
	subnet, address := netip.MustParsePrefix(subnets[args[0]]), netip.MustParseAddr(args[1])
	last := attachment.Key{Network: args[0], ContainerID: "before", IfName: "eth0"}
	_, err = store.Allocate(context.Background(), lease.Request{
		Attachment: last, Owner: attachment.Owner{Kind: "StatefulSet", Namespace: namespace, Name: name, UID: "u1"}, RequestedAddresses: []netip.Addr{address},
		Sets:   []lease.RangeSet{{{Span: lease.Span{First: subnet.Addr().Next(), Last: subnet.Addr().Next().Next().Next().Next()}, Subnet: subnet}}},
		Policy: lease.Policy{Sticky: true},
	})
	ts.Check(err)
	ts.Check(store.Release(context.Background(), last, lease.Policy{}))
	ts.Check(store.SetCluster(context.Background(), "u-here"))
}

// seen-earlier DURATION makes what gc has seen so much older.
func cmdSeenEarlier(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: seen-earlier DURATION")
	}
	by, err := time.ParseDuration(args[0])
	ts.Check(err)
	path := filepath.Join(ts.Getenv("RELINK_CHECKPOINT_DIR"), ".agent", "gc.json")
	b, err := os.ReadFile(path)
	ts.Check(err)
	var seen gc.Sightings
	ts.Check(json.Unmarshal(b, &seen))
	for i := range seen.List {
		seen.List[i].FirstSeen -= by
	}
	b, err = json.Marshal(seen)
	ts.Check(err)
	ts.Check(os.WriteFile(path, b, 0o600))
}

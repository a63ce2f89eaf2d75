package importer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// fakeAgent is an agent that gives all addresses but those that it refuses.
type fakeAgent struct {
	store *lease.Store
	// may are refused before anything changes, and has afterwards.
	may, has map[netip.Addr]string
	closed   string
	// asking, taking and claiming are errors.
	asking, taking, claiming error
	// requests is what it was told.
	requests []string
}

func (a *fakeAgent) Import(ctx context.Context, in pool.Import) (pool.Imported, error) {
	what, refused, err := "takes", a.has, a.taking
	if in.DryRun {
		what, refused, err = "asks for", a.may, a.asking
	}
	a.requests = append(a.requests, fmt.Sprintf("%s %s %v %v, %d leases", what, in.Network, in.Pools, in.Addresses, a.leases(ctx)))
	made := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}, Closed: a.closed}
	for _, address := range in.Addresses {
		if why := refused[address]; why != "" {
			made.Refused[address] = why
		} else if err == nil {
			made.Pools[address] = in.Pools[0]
		}
	}
	return made, err
}

func (a *fakeAgent) Claim(_ context.Context, c pool.ClaimedAddress) error {
	a.requests = append(a.requests, fmt.Sprintf("claims %s of %s for %s on %s of %s for %s, %s", c.Address, c.Pool, c.Owner, c.IfName, c.Network, c.Retain, c.Pod.UID))
	return a.claiming
}

func (a *fakeAgent) leases(ctx context.Context) int {
	all, err := a.store.List(ctx)
	if err != nil {
		return 0
	}
	return len(all)
}

// imported does what Import does after its look at the node.
func imported(t *testing.T, store *lease.Store, o Options, node nodeEvidence, entries ...Entry) (ImportReport, error) {
	t.Helper()
	im := importRun{
		Source: Source{Plugin: "Whereabouts", Path: "ippools.json", Noun: "allocation", Entries: entries}, network: "lan", store: "lan", Options: o, leases: store, node: node, instant: time.Now(),
	}
	return im.run(t.Context())
}

func at(address, id string) Entry {
	return Entry{Address: netip.MustParseAddr(address), Name: address, ContainerID: id, IfName: "eth0", Written: time.Now().Add(-time.Hour)}
}

// The agent is asked before anything changes. It takes what has a lease by then.
func TestImportIntoAPool(t *testing.T) {
	five, six, seven := netip.MustParseAddr("10.3.0.5"), netip.MustParseAddr("10.3.0.6"), netip.MustParseAddr("10.3.0.7")
	both := []Entry{at("10.3.0.5", "c1"), at("10.3.0.6", "c2")}
	pods := fakeNode{pods: map[string]attachment.Pod{"c1": web}}
	sticky := lease.Policy{Sticky: true, Retain: lease.Duration(time.Hour)}
	const asks, takes = "asks for lan [lan wan] [10.3.0.5 10.3.0.6], 0 leases", "takes lan [lan wan] [10.3.0.5 10.3.0.6], 2 leases"
	lost := errors.New("the connection was lost")
	for name, test := range map[string]struct {
		agent   fakeAgent
		o       Options
		node    fakeNode
		entries []Entry
		told    []string
		// want are the outcomes, then the failures, or the error.
		want   string
		leases int
	}{
		"all of it":             {fakeAgent{}, Options{}, fakeNode{}, both, []string{asks, takes}, "10.3.0.5 imported, 10.3.0.6 imported", 2},
		"nothing":               {fakeAgent{closed: "paused"}, Options{}, fakeNode{}, nil, nil, "", 0},
		"a pool that is closed": {fakeAgent{closed: "the pool is not paused"}, Options{}, fakeNode{}, both, []string{asks}, "the pool is not paused", 0},
		"a dry run":             {fakeAgent{closed: "the pool is not paused"}, Options{DryRun: true}, fakeNode{}, both, []string{asks}, "10.3.0.5 to import, 10.3.0.6 to import, closed: the pool is not paused", 0},
		"no agent":              {fakeAgent{asking: lost}, Options{}, fakeNode{}, both, []string{asks}, "ask for the addresses of the pools: the connection was lost", 0},
		"what the pool does not have": {
			fakeAgent{may: map[netip.Addr]string{five: "it is in no range"}}, Options{Policy: sticky}, pods, both, []string{asks, "takes lan [lan wan] [10.3.0.6], 1 leases"},
			"10.3.0.5 refused: it is in no range, 10.3.0.6 imported", 1,
		},
		"what another node has taken meanwhile": {
			fakeAgent{has: map[netip.Addr]string{six: "node2 has it"}}, Options{}, fakeNode{}, both, []string{asks, takes}, "10.3.0.5 imported, 10.3.0.6 refused: node2 has it", 2,
		},
		"an agent that ends meanwhile": {
			fakeAgent{taking: lost}, Options{Policy: sticky}, pods, both, []string{asks, takes},
			"10.3.0.5 refused: it is leased, and this node does not have it of the pool so far: run it again, 10.3.0.6 refused: it is leased, and this node does not have it of the pool so far: run it again, " +
				"failed: the leases are there, but this node does not have all of these addresses of the pools: run it again: the connection was lost", 2,
		},
		"an owner that keeps its address": {
			fakeAgent{}, Options{Policy: sticky}, pods, both, []string{asks, takes, "claims 10.3.0.5 of lan for pod shop/web-0 on eth0 of lan for 1h0m0s, uid-0"}, "10.3.0.5 imported, 10.3.0.6 imported", 2,
		},
		"an owner that keeps it on this node so far": {
			fakeAgent{claiming: lost}, Options{Policy: sticky}, pods, both, []string{asks, takes, "claims 10.3.0.5 of lan for pod shop/web-0 on eth0 of lan for 1h0m0s, uid-0"},
			"10.3.0.5 imported, 10.3.0.6 imported, failed: other nodes do not know that the owner of 10.3.0.5 keeps it: run it again: the connection was lost", 2,
		},
		"what is gone": {
			fakeAgent{}, Options{}, fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictGone}}, both, []string{"asks for lan [lan wan] [10.3.0.6], 0 leases", "takes lan [lan wan] [10.3.0.6], 1 leases"},
			"10.3.0.5 out of date: the pool is not asked for it: the allocation's sandbox is gone: seen, 10.3.0.6 imported", 1,
		},
		"what is torn": {
			fakeAgent{}, Options{}, fakeNode{}, []Entry{{Address: seven, Name: "10.3.0.7", Torn: "it is empty"}},
			[]string{"asks for lan [lan wan] [10.3.0.7], 0 leases", "takes lan [lan wan] [10.3.0.7], 1 leases"}, "10.3.0.7 torn: it is empty: held back, because a pod may have the address", 1,
		},
		"what is torn, and of no pool": {
			fakeAgent{may: map[netip.Addr]string{seven: "it is in no range"}}, Options{}, fakeNode{}, []Entry{{Address: seven, Name: "10.3.0.7", Torn: "it is empty"}},
			[]string{"asks for lan [lan wan] [10.3.0.7], 0 leases"}, "10.3.0.7 refused: it is in no range", 0,
		},
	} {
		store, err := lease.Open(t.TempDir(), "lan")
		if err != nil {
			t.Fatal(err)
		}
		test.agent.store = store
		test.o.Pools, test.o.Agent = []string{"lan", "wan"}, &test.agent
		r, err := imported(t, store, test.o, test.node, test.entries...)
		if got := reportText(r, err); got != test.want || !slices.Equal(test.agent.requests, test.told) || test.agent.leases(t.Context()) != test.leases {
			t.Errorf("%s: %s, %d leases\n%s\nwant %s, %d leases\n%s", name, got, test.agent.leases(t.Context()), strings.Join(test.agent.requests, "\n"), test.want, test.leases, strings.Join(test.told, "\n"))
		}
		if err == nil && r.Complete() != (!strings.Contains(test.want, "refused") && !strings.Contains(test.want, "failed") && !strings.Contains(test.want, "torn")) {
			t.Errorf("%s: complete %t", name, r.Complete())
		}
	}
}

// reportText are the outcomes and the failures of a report, or the error.
func reportText(r ImportReport, err error) string {
	if err != nil {
		return err.Error()
	}
	var words []string
	for _, f := range r.Files {
		word := fmt.Sprintf("%s %s", f.Address, f.State)
		if f.Reason != "" {
			word += ": " + f.Reason
		}
		words = append(words, word)
	}
	if r.Closed != "" {
		words = append(words, "closed: "+r.Closed)
	}
	for _, failed := range r.Failed {
		words = append(words, "failed: "+failed)
	}
	return strings.Join(words, ", ")
}

// An import that is run again claims what was not claimed.
func TestImportIntoAPoolAgain(t *testing.T) {
	store, err := lease.Open(t.TempDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	pods := fakeNode{pods: map[string]attachment.Pod{"c1": web, "c2": db}}
	agent := &fakeAgent{store: store, claiming: errors.New("the API is away")}
	o := Options{Pools: []string{"lan"}, Agent: agent, Policy: lease.Policy{Sticky: true}}
	for _, step := range []struct {
		entries []Entry
		told    string
		want    string
	}{
		{[]Entry{at("10.3.0.5", "c1")}, "asks, takes, claims", "10.3.0.5 imported, failed: other nodes do not know that the owner of 10.3.0.5 keeps it: run it again: the API is away"},
		{[]Entry{at("10.3.0.5", "c1"), at("10.3.0.6", "c2")}, "asks, takes, claims, claims", "10.3.0.5 already there, 10.3.0.6 imported"},
		{[]Entry{at("10.3.0.5", "c1"), at("10.3.0.6", "c2")}, "asks, takes", "10.3.0.5 already there, 10.3.0.6 already there"},
		{[]Entry{at("10.3.0.5", "c1")}, "asks, takes", "10.3.0.5 already there"},
	} {
		agent.requests = nil
		r, err := imported(t, store, o, pods, step.entries...)
		var verbs []string
		for _, told := range agent.requests {
			verbs = append(verbs, strings.Fields(told)[0])
		}
		if got := reportText(r, err); got != step.want || strings.Join(verbs, ", ") != step.told {
			t.Errorf("%s\n%s\nwant %s\n%s", got, strings.Join(agent.requests, "\n"), step.want, step.told)
		}
		agent.claiming = nil
	}
	// Another node has it by now.
	agent.may = map[netip.Addr]string{netip.MustParseAddr("10.3.0.5"): "node2 has it"}
	if r, err := imported(t, store, o, pods, at("10.3.0.5", "c1"), at("10.3.0.6", "c2")); err != nil || r.Files[0].State != Refused || r.Files[0].Owner != web.Owner() {
		t.Errorf("%v, %+v", err, r)
	}
}

// A pod that the other plugin does not know is missing, unless the store knows it or it has ended.
func TestUnlisted(t *testing.T) {
	e := Entry{Address: subject, ContainerID: "c1", IfName: "eth0"}
	for name, test := range map[string]struct {
		was  lease.Lease
		node fakeNode
		want string
	}{
		"a pod": {lease.Lease{}, fakeNode{pods: map[string]attachment.Pod{"c1": web}},
			"missing: the CNI cache has it for this pod, and /networks/lan has no file of it: delete the pod"},
		"a pod of which is not known":   {lease.Lease{}, fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictUnknown}}, "missing: the CNI"},
		"an address of another one":     {held(lease.InTurn, "c2"), fakeNode{}, "missing: the CNI"},
		"a pod that relink knows":       {held(lease.InTurn, "c1"), fakeNode{}, ""},
		"a pod that is gone":            {lease.Lease{}, fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictGone}}, ""},
		"a pod whose DEL is still owed": {lease.Lease{}, fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictDELDue}}, ""},
	} {
		im := newImporter(test.node, lease.Policy{})
		im.decideUnlisted(e, test.was)
		d := im.decision(t)
		if got := strings.Join(d.Said, ", "); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || d.Put.State != "" {
			t.Errorf("%s: %s, %+v, want %s", name, got, d.Put, test.want)
		}
	}
}

// A copy can be older than the pod.
func TestUnlistedInACopy(t *testing.T) {
	im := newImporter(fakeNode{}, lease.Policy{})
	im.Copy = true
	im.decideUnlisted(Entry{Address: subject, ContainerID: "c1", IfName: "eth0"}, lease.Lease{})
	const want = "missing: the CNI cache has it for this pod, and /networks/lan has no file of it: it is older than the pod, so make it anew; if it still has none, delete the pod"
	if got := strings.Join(im.decision(t).Said, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

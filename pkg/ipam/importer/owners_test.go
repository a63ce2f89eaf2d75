package importer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

var (
	ofSet  = attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "uid-set", Ordinal: attachment.OrdinalOf(0)}
	itself = attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: "web-0", UID: "uid-0"}
)

// fakeOwners tells the same of each pod, and notes whom it was asked about.
type fakeOwners struct {
	answer owner.Answer
	err    error
	asked  []string
}

func (k *fakeOwners) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	k.asked = append(k.asked, fmt.Sprintf("%s %s on %s of %s", q.Pod, q.Pod.UID, q.IfName, q.Network))
	return k.answer, k.err
}

// keptFor says for whom the only lease of the store is kept, and how.
func keptFor(t *testing.T, store *lease.Store) string {
	t.Helper()
	all, err := store.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	p := all[0].Newest().Policy
	return fmt.Sprintf("%s %q of %s, sticky %t, by owner %t, shared %t, retain %s, claimed %t", all[0].Owner, all[0].Owner.UID, all[0].Newest().Owner, p.Sticky, p.ByOwner, p.Shared, p.Retain, all[0].Claimed)
}

// An address is kept as an ADD with "sticky": "owner" keeps it.
func TestImportForOwners(t *testing.T) {
	const asks = "shop/web-0 uid-0 on eth0 of lan"
	for name, test := range map[string]struct {
		knows    fakeOwners
		gone     bool
		asked    string
		want     string
		claimed  string
		complete bool
	}{
		"a StatefulSet's pod": {
			fakeOwners{answer: owner.Answer{Owner: ofSet, Persistent: true, SinglePod: true}}, false, asks,
			`StatefulSet shop/web, ordinal 0 "uid-set" of StatefulSet shop/web, ordinal 0, sticky true, by owner true, shared false, retain 1h0m0s, claimed true`,
			"claims 10.3.0.5 of lan for StatefulSet shop/web, ordinal 0 on eth0 of lan for 1h0m0s, uid-0", true,
		},
		"an owner with several pods": {
			fakeOwners{answer: owner.Answer{Owner: ofSet, Persistent: true}}, false, asks,
			`StatefulSet shop/web, ordinal 0 "uid-set" of StatefulSet shop/web, ordinal 0, sticky true, by owner true, shared true, retain 1h0m0s, claimed false`, "", true,
		},
		"a pod that never comes back": {
			fakeOwners{answer: owner.Answer{Owner: itself, SinglePod: true}}, false, asks,
			`pod shop/web-0 "uid-0" of pod shop/web-0, sticky false, by owner true, shared false, retain 0s, claimed false`, "", true,
		},
		"nobody can tell": {
			fakeOwners{err: owner.ErrUnavailable}, false, asks,
			`pod shop/web-0 "" of -, sticky true, by owner false, shared false, retain 1h0m0s, claimed true`,
			"claims 10.3.0.5 of lan for pod shop/web-0 on eth0 of lan for 1h0m0s, uid-0", false,
		},
	} {
		store, err := lease.Open(t.TempDir(), "lan")
		if err != nil {
			t.Fatal(err)
		}
		agent := &fakeAgent{store: store}
		o := Options{Pools: []string{"lan"}, Agent: agent, Owners: &test.knows, Policy: lease.Policy{Sticky: true, Retain: lease.Duration(time.Hour)}}
		r, err := imported(t, store, o, fakeNode{pods: map[string]attachment.Pod{"c1": web}}, at("10.3.0.5", "c1"))
		if got := strings.Join(test.knows.asked, ", "); err != nil || r.Complete() != test.complete || got != test.asked {
			t.Errorf("%s: %v, complete %t, asked %s, want %s", name, err, r.Complete(), got, test.asked)
		}
		if got := keptFor(t, store); got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
		claimed := ""
		if last := agent.requests[len(agent.requests)-1]; strings.HasPrefix(last, "claims") {
			claimed = last
		}
		if claimed != test.claimed {
			t.Errorf("%s: %s\nwant %s", name, claimed, test.claimed)
		}
	}
}

// Nobody knows the owner, and the next import completes the lease.
func TestImportForOwnersAgain(t *testing.T) {
	store, err := lease.Open(t.TempDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	agent, api := &fakeAgent{store: store}, &fakeOwners{err: fmt.Errorf("%w: %w", owner.ErrUnavailable, owner.ErrNoAsker)}
	o := Options{Pools: []string{"lan"}, Agent: agent, Owners: api, Policy: lease.Policy{Sticky: true}}
	pods := fakeNode{pods: map[string]attachment.Pod{"c1": web, "c2": db}}
	r, err := imported(t, store, o, pods, at("10.3.0.5", "c1"), at("10.3.0.6", "c2"))
	want := []string{
		"the addresses of shop/web-0, shop/db-0 are kept for these pods by their names, and not for their owners: run it again: the owner of the address is not known now: no relink-agent runs on this node",
	}
	if diff := cmp.Diff(want, r.Failed); err != nil || diff != "" || len(api.asked) != 2 {
		t.Errorf("%v, asked %v: %s", err, api.asked, diff)
	}
	api.err, api.answer = nil, owner.Answer{Owner: ofSet, Persistent: true, SinglePod: true}
	r, err = imported(t, store, o, pods, at("10.3.0.5", "c1"), at("10.3.0.6", "c2"))
	if got, want := reportText(r, err), "10.3.0.5 completed, 10.3.0.6 completed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if last := agent.requests[len(agent.requests)-1]; !strings.HasPrefix(last, "claims 10.3.0.6 of lan for StatefulSet shop/web") {
		t.Errorf("the agent is told: %s", last)
	}
	api.asked, api.err = nil, errors.New("the API is away")
	r, err = imported(t, store, o, pods, at("10.3.0.5", "c1"), at("10.3.0.6", "c2"))
	if got, want := reportText(r, err), "10.3.0.5 already there, 10.3.0.6 already there"; got != want || len(api.asked) > 0 {
		t.Errorf("%s, want %s, asked %v", got, want, api.asked)
	}
}

// The API knows no pod whose sandbox is gone, and the owner of an operator's reservation stays.
func TestWhoIsNotAsked(t *testing.T) {
	im := newImporter(fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictGone}, pods: map[string]attachment.Pod{"c1": web, "c2": web}}, lease.Policy{Sticky: true})
	im.pendingOwners = map[attachment.Key]attachment.Pod{}
	im.decideEntry(Entry{Address: subject, ContainerID: "c1", IfName: "eth0"}, lease.Lease{})
	if len(im.pendingOwners) > 0 {
		t.Errorf("%v", im.pendingOwners)
	}
	key := attachment.Key{Network: "lan", ContainerID: "c2", IfName: "eth0"}
	im.files, im.batch = nil, lease.Import{}
	im.answers = map[attachment.Key]owner.Answer{key: {Owner: ofSet, Persistent: true, SinglePod: true}}
	im.decideEntry(Entry{Address: subject, ContainerID: "c2", IfName: "eth0"}, byHand(reserved("", web)))
	d := im.decision(t)
	if d.Put.Owner != web.Owner() || !d.Put.ByHand || d.Put.Holders[0].Owner != ofSet || !d.Put.Holders[0].Policy.ByOwner {
		t.Errorf("%+v", d)
	}
}

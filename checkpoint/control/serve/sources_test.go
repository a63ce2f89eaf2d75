package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/agentsocket"
)

// owners answers with answer, or with err.
type owners struct {
	answer owner.Answer
	err    error
	asked  owner.Question
	wrote  owner.Fulfilment
}

func (o *owners) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	o.asked = q
	return o.answer, o.err
}

func (o *owners) Fulfil(_ context.Context, f owner.Fulfilment) error {
	o.wrote = f
	return o.err
}

// Judge says that every second owner is gone.
func (o *owners) Judge(_ context.Context, podOwners []attachment.Owner) (judged []owner.Judgement) {
	for i, o := range podOwners {
		j := owner.Judgement{Owner: o, Standing: owner.Exists, Reason: "it is there"}
		if i%2 == 1 {
			j.Standing, j.Reason = owner.Gone, "404"
		}
		judged = append(judged, j)
	}
	return judged
}

// runtime tells of these sandboxes.
type runtime struct {
	sandboxes []sandbox.RuntimeSandbox
	err       error
}

func (r runtime) Sandboxes(context.Context) ([]sandbox.RuntimeSandbox, error) {
	return r.sandboxes, r.err
}

// serveSources returns a client of a socket with the sources.
func serveSources(t *testing.T, s serve.Sources) control.Client {
	t.Helper()
	return control.Client{Path: agentsocket.Serve(t, serve.Handler(&agent{}, s, nil))}
}

var sameAddress = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// Everything that the agent knows of a pod comes over the socket as it was.
func TestAnAnswerComesOverAsItWas(t *testing.T) {
	replica := 2
	want := owner.Answer{
		Owner:      attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u1", Ordinal: attachment.OrdinalOf(0)},
		Persistent: true, SinglePod: true,
		Static: &owner.Static{Key: "ipam.relink.dev/lan", Addresses: []netip.Addr{netip.MustParseAddr("10.3.0.7"), netip.MustParseAddr("fd00::7")}, Replica: &replica},
		Claim:  &owner.Claim{Name: "web.lan", UID: "u2", IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.7/24")}},
	}
	o := &owners{answer: want}
	client := serveSources(t, serve.Sources{Owners: o})
	q := owner.Question{Pod: attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u3"}, Network: "lan", IfName: "net1", Claims: true}
	got, err := client.Ask(t.Context(), q)
	if diff := cmp.Diff(want, got, sameAddress); err != nil || diff != "" || o.asked != q {
		t.Errorf("%v, asked %+v (-want +got):\n%s", err, o.asked, diff)
	}
	f := owner.Fulfilment{Pod: q.Pod, Claim: *want.Claim, IPs: want.Claim.IPs}
	if err := client.Fulfil(t.Context(), f); err != nil || !cmp.Equal(f, o.wrote, sameAddress) {
		t.Errorf("%v %+v", err, o.wrote)
	}
}

// A plugin can tell a pod's mistake from an answer that may come later.
func TestARefusedQuestionKeepsItsMeaning(t *testing.T) {
	for text, test := range map[string]struct {
		err   error
		cause error
		want  string
	}{
		"invalid":     {fmt.Errorf(`%w: annotation a: "x": must be an address`, owner.ErrInvalid), owner.ErrInvalid, `the pod asks for what cannot be: annotation a: "x": must be an address`},
		"unavailable": {fmt.Errorf("%w: 403", owner.ErrUnavailable), owner.ErrUnavailable, "the owner of the address is not known now: 403"},
		"differs":     {fmt.Errorf("%w: 10.3.0.9/24", owner.ErrDiffers), owner.ErrDiffers, "the IPAMClaim has other addresses: 10.3.0.9/24"},
		"another":     {errors.New("boom"), owner.ErrUnavailable, "the owner of the address is not known now: boom"},
	} {
		client := serveSources(t, serve.Sources{Owners: &owners{err: test.err}})
		_, err := client.Ask(t.Context(), owner.Question{})
		if !errors.Is(err, test.cause) || err.Error() != test.want {
			t.Errorf("%s: Ask: %v", text, err)
		}
		if err := client.Fulfil(t.Context(), owner.Fulfilment{}); !errors.Is(err, test.cause) || err.Error() != test.want {
			t.Errorf("%s: Fulfil: %v", text, err)
		}
	}
	none := control.Client{Path: filepath.Join(t.TempDir(), "none")}
	if _, err := none.Ask(t.Context(), owner.Question{}); !errors.Is(err, owner.ErrUnavailable) || !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("no agent: %v", err)
	}
	withoutAPI := serveSources(t, serve.Sources{})
	if _, err := withoutAPI.Ask(t.Context(), owner.Question{}); !errors.Is(err, owner.ErrUnavailable) || !strings.HasSuffix(err.Error(), "relink-agent has no Kubernetes API: start it with --kubeconfig, or as a DaemonSet") {
		t.Errorf("no API: %v", err)
	}
	if _, err := serveSources(t, serve.Sources{Owners: &owners{}}).Ask(t.Context(), owner.Question{}); !errors.Is(err, owner.ErrUnavailable) {
		t.Errorf("an agent that names nobody: %v", err)
	}
}

// Many owners are judged in several requests, and the judgements stay in order. Without an answer, all are unknown.
func TestManyOwnersAreJudged(t *testing.T) {
	var podOwners []attachment.Owner
	for i := range 2*control.MaxOwners + 2 {
		podOwners = append(podOwners, attachment.Owner{Kind: "pod", Namespace: "shop", Name: strings.Repeat("n", 240) + fmt.Sprint(i), UID: fmt.Sprint(i)})
	}
	judged := serveSources(t, serve.Sources{Owners: &owners{}}).Judge(t.Context(), podOwners)
	if len(judged) != len(podOwners) {
		t.Fatalf("%d judgements", len(judged))
	}
	for i, j := range judged {
		if want := []owner.Standing{owner.Exists, owner.Gone}[i%2]; j.Owner != podOwners[i] || j.Standing != want {
			t.Fatalf("%d: %+v", i, j)
		}
	}
	none := control.Client{Path: filepath.Join(t.TempDir(), "none")}
	for _, j := range none.Judge(t.Context(), podOwners[:3]) {
		if j.Standing != owner.Unknown || !strings.Contains(j.Reason, "no relink-agent runs on this node") {
			t.Errorf("%+v", j)
		}
	}
}

// What the runtime tells comes over, and so does that it has not told all.
func TestTheRuntimesSandboxesComeOver(t *testing.T) {
	want := []sandbox.RuntimeSandbox{
		{ContainerID: "c1", Pod: attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, Ready: true, Netns: "/run/netns/c1", Created: time.Unix(1000, 0).UTC()},
		{ContainerID: "c2", HostNetwork: true},
	}
	got, err := serveSources(t, serve.Sources{Runtime: runtime{sandboxes: want}}).Sandboxes(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = serveSources(t, serve.Sources{Runtime: runtime{sandboxes: want[:1], err: errors.New("it hangs")}}).Sandboxes(t.Context())
	if len(got) != 1 || err == nil || err.Error() != "it hangs" {
		t.Errorf("%v %v", got, err)
	}
	none := fmt.Errorf("%w: nothing listens on /x", sandbox.ErrNoRuntime)
	if _, err := serveSources(t, serve.Sources{Runtime: runtime{err: none}}).Sandboxes(t.Context()); !errors.Is(err, sandbox.ErrNoRuntime) || err.Error() != none.Error() {
		t.Errorf("a node without a runtime: %v", err)
	}
	if _, err := serveSources(t, serve.Sources{}).Sandboxes(t.Context()); err == nil || err.Error() != "relink-agent refused: relink-agent has no container runtime" {
		t.Errorf("no runtime: %v", err)
	}
}

// An agent refuses a long request without a look at it. The client reads why, and not that the connection was reset.
func TestALongRequestIsRefusedWithTheReason(t *testing.T) {
	c := serveSources(t, serve.Sources{})
	podOwners := make([]attachment.Owner, control.MaxOwners)
	for i := range podOwners {
		podOwners[i] = attachment.Owner{Kind: "StatefulSet", Namespace: "shop", Name: fmt.Sprintf("a-long-name-of-an-owner-%d", i), UID: "0d2a5c0e-97f6-4b3e-a5b7-0d8a1f8c6f55"}
	}
	long := strings.Repeat("x", 1<<20)
	for range 20 { // The reset came most times.
		for _, j := range c.Judge(t.Context(), podOwners) {
			if want := "relink-agent refused: relink-agent has no Kubernetes API: start it with --kubeconfig, or as a DaemonSet"; j.Reason != want {
				t.Fatalf("%q, want %q", j.Reason, want)
			}
		}
		if _, err := c.Pause(t.Context(), 0, long); err == nil || !strings.Contains(err.Error(), "request body too large") {
			t.Fatalf("a long pause: %v", err)
		}
		if _, err := c.Import(t.Context(), pool.Import{Network: long, Addresses: []netip.Addr{netip.IPv4Unspecified()}}); err == nil || strings.Contains(err.Error(), "reset") {
			t.Fatalf("a long import: %v", err)
		}
	}
}

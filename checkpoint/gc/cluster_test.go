package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Ask answers for the pods that the API has.
func (c *cluster) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	if c.standing[itself(q.Pod)] != owner.Exists {
		return owner.Answer{}, fmt.Errorf("%w: the API has no such pod", owner.ErrUnavailable)
	}
	return owner.Answer{Owner: itself(q.Pod)}, nil
}

func itself(pod attachment.Pod) attachment.Owner {
	o := pod.Owner()
	o.UID = pod.UID
	return o
}

// agentPod is a pod that relink has attached to nothing.
var agentPod = attachment.Pod{Namespace: "relink-system", Name: "relink-agent-x", UID: "u-agent"}

// runsAgent has the runtime run the pod.
func (n *node) runsAgent() {
	n.sandboxes = append(n.sandboxes, sandbox.RuntimeSandbox{ContainerID: "agent", Ready: true, HostNetwork: true, Pod: agentPod})
}

// expectProblems expects exactly these problems.
func expectProblems(t *testing.T, when string, r PassReport, want ...string) {
	t.Helper()
	if !slices.EqualFunc(r.Problems, want, strings.Contains) {
		t.Errorf("%s: problems %q, want %q", when, r.Problems, want)
	}
}

// A store that knows no cluster takes that of an API which knows somebody of this node. Only a pass that frees notes it.
func TestTheFirstCluster(t *testing.T) {
	for name, knows := range map[string]func(*node, *testing.T){
		"a pod": func(n *node, _ *testing.T) { n.standing[itself(agentPod)] = owner.Exists },
		"an owner": func(n *node, t *testing.T) {
			n.sandboxes = nil
			n.reserve(t, web(2))
			if _, err := n.leases.ResetMachine(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.standing[web(2)] = owner.Exists
		},
	} {
		n := newNode(t)
		n.reserve(t, web(1))
		if _, err := n.leases.ResetMachine(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.standing[web(1)] = owner.Gone
		n.runsAgent()
		const problem = "network lan: it is not known whether the Kubernetes API is this node's: it knows no pod that runs here, and no owner for whom an address waits"
		for range 2 {
			r := n.pass(t, n.options())
			expectStates(t, "it knows nobody", r, "10.3.0.2 kept")
			expectProblems(t, "it knows nobody", r, problem)
		}
		knows(n, t)
		dry := n.options()
		dry.DryRun = true
		expectStates(t, name+", a dry run", n.pass(t, dry), "10.3.0.2 waiting")
		if err := n.leases.CheckCluster(t.Context(), here); !errors.Is(err, lease.ErrNoCluster) {
			t.Errorf("%s: a dry run has noted the cluster: %v", name, err)
		}
		expectStates(t, name, n.pass(t, n.options()), "10.3.0.2 waiting")
		if err := n.leases.CheckCluster(t.Context(), here); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		expectStates(t, name, n.pass(t, n.options()), "10.3.0.2 freed, free")
	}
}

// Another cluster's API frees nothing, even if the kubeconfig is replaced between the two times that a pass asks.
func TestAnotherCluster(t *testing.T) {
	n := newNode(t)
	n.reserve(t, web(1))
	n.standing[web(1)] = owner.Gone
	expectStates(t, "first", n.pass(t, n.options()), "10.3.0.2 waiting")
	n.then[len(n.asked)+1] = func(c *cluster) { c.uid = "u-other" }
	r := n.pass(t, n.options())
	expectStates(t, "replaced", r, "10.3.0.2 kept")
	const says = "the Kubernetes API is another cluster's: the UID of its namespace kube-system is u-other, and was u-here"
	if why := r.Outcomes[0].Reason; !strings.Contains(why, "asked once more, right before: ") || !strings.Contains(why, says) {
		t.Errorf("%s", why)
	}
	for range 2 {
		r = n.pass(t, n.options())
		expectStates(t, "another cluster", r, "10.3.0.2 kept")
		expectProblems(t, "another cluster", r, says)
	}
	n.uid = here
	expectStates(t, "it answers by halves", n.pass(t, n.options()), "10.3.0.2 waiting")
	n.then[len(n.asked)+1] = func(c *cluster) { c.uid = "" }
	r = n.pass(t, n.options())
	expectStates(t, "it answers by halves", r, "10.3.0.2 kept")
	if why := r.Outcomes[0].Reason; why != "asked once more, right before: the Kubernetes API does not tell which cluster it is: forbidden" {
		t.Errorf("%s", why)
	}
	n.pass(t, n.options()) // It does not tell at all: what was seen before does not count.
	n.uid = here
	expectStates(t, "it is back: the time counts anew", n.pass(t, n.options()), "10.3.0.2 waiting")
	expectStates(t, "it is back", n.pass(t, n.options()), "10.3.0.2 freed, free")
}

// An API that does not tell its cluster frees nothing. That is said once for all networks.
func TestAClusterThatIsNotTold(t *testing.T) {
	n := newNode(t)
	lan := n.leases
	n.reserve(t, web(1))
	n.leases = store(t, t.TempDir(), "san")
	n.reserve(t, web(2))
	n.standing[web(1)], n.standing[web(2)] = owner.Gone, owner.Gone
	o := n.options()
	o.Leases = append(o.Leases, lan)
	n.uid = ""
	for range 2 {
		r := n.pass(t, o)
		expectStates(t, "not told", r, "10.3.0.2 kept", "10.3.0.2 kept")
		expectProblems(t, "not told", r, "the Kubernetes API does not tell which cluster it is, so nobody counts as gone: the namespace kube-system cannot be read: forbidden")
	}
}

// Two directories have stores of one network. One of them knows another cluster.
func TestClustersOfTwoDirectories(t *testing.T) {
	n := newNode(t)
	a := n.leases
	n.reserve(t, web(1))
	n.standing[web(1)], n.standing[web(2)] = owner.Gone, owner.Gone
	b := store(t, t.TempDir(), "lan")
	n.leases = b
	n.reserve(t, web(2))
	_, err := b.ResetMachine(t.Context())
	if err := errors.Join(err, b.SetCluster(t.Context(), "u-other")); err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]*lease.Store{{a, b}, {b, a}} {
		o := n.options()
		o.Leases = order
		r := n.pass(t, o)
		for _, one := range r.Outcomes {
			if want := map[string]change.State{web(1).Name: Waiting, web(2).Name: change.Kept}[one.Owner.Name]; one.State != want && (one.State != Freed || want != Waiting) {
				t.Errorf("%s %s, want %s: %q", one.Owner, one.State, want, one.Evidence)
			}
		}
		expectProblems(t, "one store is another cluster's", r, "the UID of its namespace kube-system is u-here, and was u-other")
	}
}

// An API that does not know a pod which runs here frees nothing. The same holds if nobody knows which pods run here.
func TestAnEmptiedAPI(t *testing.T) {
	n := newNode(t)
	n.reserve(t, web(1))
	n.standing[web(1)] = owner.Gone
	n.runsAgent()
	asks := func() Options {
		o := n.options()
		o.Asker = &n.cluster
		return o
	}
	for range 2 {
		r := n.pass(t, asks())
		expectStates(t, "emptied", r, "10.3.0.2 kept")
		expectProblems(t, "emptied", r, "the pod of sandbox agent runs here, and the Kubernetes API does not tell of it: ")
	}
	runs := n.sandboxes
	n.down, n.sandboxes = errors.New("containerd does not answer"), nil
	for range 2 {
		r := n.pass(t, asks())
		expectStates(t, "emptied, and the runtime is away", r, "10.3.0.2 kept")
		expectProblems(t, "emptied, and the runtime is away", r, "containerd does not answer")
		if why := r.Outcomes[0].Evidence[0]; !strings.Contains(why, "the container runtime did not tell of them: containerd does not answer") {
			t.Errorf("%s", why)
		}
	}
	n.down, n.sandboxes = nil, runs
	n.standing[itself(agentPod)] = owner.Exists
	expectStates(t, "it is back: the time counts anew", n.pass(t, asks()), "10.3.0.2 waiting")
	expectStates(t, "it is back", n.pass(t, asks()), "10.3.0.2 freed, free")
}

var _ audit.Asker = (*cluster)(nil)

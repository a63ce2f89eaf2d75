package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

// fakeAgent is an agent with fixed answers.
type fakeAgent struct {
	status  control.Status
	figures agent.Figures
}

func (s fakeAgent) Status() control.Status { return s.status }
func (s fakeAgent) Figures() agent.Figures { return s.figures }

// What a real page of metrics says comes over.
func TestFiguresOfAPage(t *testing.T) {
	m := metrics.New(`v1 "beta"`, t.TempDir())
	m.RegisterAgent(fakeAgent{
		control.Status{Paused: &control.Pause{}, Unannounced: 4, Drift: make([]control.Drift, 2), Chains: []control.Chain{
			{Base: "eth0", State: control.BackingOff, Attachments: 12, Lost: 1}, {Base: "bond4", State: control.Whole, Attachments: 5},
		}},
		agent.Figures{Unreadable: 1, Absent: 3},
	})
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	f, ok := parseFigures(answer.Body.Bytes())
	want := figures{
		Version: `v1 "beta"`, Attachments: map[string]int{"whole": 14, "lost": 1, "drifted": 2, "sandbox_gone": 3}, Bases: map[string]string{"eth0": "backing off"},
		Unreadable: 1, Owed: 4, Paused: true,
	}
	if diff := cmp.Diff(want, f); diff != "" || !ok {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	for _, page := range []string{"", "<html>relink_agent_build_info</html>", "relink_attachments{ 3\n# relink_agent_build_info 1\n"} {
		if f, ok := parseFigures([]byte(page)); ok {
			t.Errorf("%q is a page: %+v", page, f)
		}
	}
}

// Of two pods of a node the one that is ready is asked.
func TestChosenPods(t *testing.T) {
	pods := []objects.AgentPod{
		{Name: "old", Node: "node1", Ready: true, Ending: true}, {Name: "new", Node: "node1", Ready: true}, {Name: "starting", Node: "node1"},
		{Name: "only", Node: "node3", Ending: true}, {Name: "pending"},
	}
	for node, want := range map[string]string{"node1": "new", "node2": "", "node3": "only"} {
		got := ""
		if p := chosenPod(pods, node); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", node, got, want)
		}
	}
}

func TestStatusIsShown(t *testing.T) {
	counts := func(whole, gone, moved int) map[string]int {
		return map[string]int{"whole": whole, "lost": gone, "drifted": moved}
	}
	all := clusterReport{Nodes: []nodeReport{
		{Node: "node1", Pod: "relink-agent-x", State: asRecorded, Figures: &figures{Version: "v2", Attachments: counts(30, 0, 0)}},
		{Node: "node2", State: differs, Reason: "eth0 is waiting", Figures: &figures{Version: "v1", Attachments: counts(7, 2, 1)}},
		{Node: "node3", State: noAgent, Reason: "it has no pod of relink-agent"},
		{Node: "node4", State: noAnswer, Reason: "the Kubernetes API answers with an error"},
	}}.sum()
	const summary = "4 nodes: 1 as recorded, 1 differs, 1 no answer, 1 no agent; 40 interfaces, 2 lost, 1 drifted\n"
	for quiet, want := range map[bool]string{
		false: `NODE   VERSION  INTERFACES  LOST  DRIFTED  STATE        WHY
node1  v2       30          0     0        as recorded  -
node2  v1       10          2     1        differs      eth0 is waiting
node3  -        -           -     -        no agent     it has no pod of relink-agent
node4  -        -           -     -        no answer    the Kubernetes API answers with an error
` + summary,
		true: `NODE   VERSION  INTERFACES  LOST  DRIFTED  STATE      WHY
node2  v1       10          2     1        differs    eth0 is waiting
node4  -        -           -     -        no answer  the Kubernetes API answers with an error
`,
	} {
		if got := shown(quiet, func(s *cli.Screen) { all.write(s) }); got != want {
			t.Errorf("quiet %t:\n%s\nwant\n%s", quiet, got, want)
		}
	}
	if got, want := (figures{Bases: map[string]string{"eth1": "lost", "bond4": "waiting"}, Unreadable: 2, Owed: 1, Paused: true}).reasons(),
		[]string{"bond4 is waiting", "eth1 is lost", "2 checkpoints cannot be read", "neighbours are not told yet of 1 interface", "the agent is paused"}; !cmp.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// agentLimit bounds the question to one agent: a dead node takes no longer.
	agentLimit = 10 * time.Second
	// parallelAgents is how many agents are asked at the same time.
	parallelAgents = 16
)

// nodeState is how a node is.
type nodeState string

const (
	asRecorded nodeState = "as recorded"
	// differs: interfaces are lost or have drifted, or checkpoints cannot be read.
	differs  nodeState = "differs"
	noAnswer nodeState = "no answer"
	// noAgent: the node has no pod of relink-agent. It may run as a service there, or not at all.
	noAgent nodeState = "no agent"
)

// nodeReport is what the agent of a node says.
type nodeReport struct {
	Node  string    `json:"node"`
	Pod   string    `json:"pod,omitempty"`
	State nodeState `json:"state"`
	// Reason says why it is in that state.
	Reason string `json:"why,omitempty"`
	// Figures are nil if no agent has answered.
	Figures *figures `json:"figures,omitempty"`
}

// clusterReport is what all agents say.
type clusterReport struct {
	Nodes []nodeReport `json:"nodes"`
	// States counts the nodes in each state, and Attachments the interfaces.
	States      map[nodeState]int `json:"states"`
	Attachments map[string]int    `json:"attachments"`
}

func newStatus(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the agent of each node, and which interfaces of pods are lost or have drifted",
		Long: `Show for each node whether relink-agent runs there, its version, and how many interfaces of pods
it knows, has lost, or finds changed. It asks the agents' pods through the Kubernetes API for
their metrics. An agent that runs as a service of systemd has no pod: run "relink status" there.

LOST went with a NIC or a bond, and the agent restores it. DRIFTED was changed by somebody, and
the agent leaves it alone.

Exit status 0: everything is as recorded on all nodes with an agent; 1: something is not, or an
agent does not answer; 2: usage or environment, such as no agent at all.`,
		Example: `  kubectl relink status
  kubectl relink status -q       # only the nodes where something is wrong
  kubectl relink status -o json`,
		Args: cli.Takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := screenOf(cmd)
			report, err := c.readStatus(cmd.Context(), s.Progress("node"))
			if err != nil {
				return err
			}
			return s.Present(report, report.States[differs]+report.States[noAnswer] == 0, func() { report.write(s) })
		},
	}
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

// readStatus asks the agents of all nodes.
func (c *connection) readStatus(ctx context.Context, progress func(finished, total int)) (r clusterReport, err error) {
	client, err := c.client()
	if err != nil {
		return r, err
	}
	nodes, err := objects.NewPoolAPI(client).Nodes(ctx)
	if err != nil {
		return r, err
	}
	pods, err := client.AgentPods(ctx, c.namespace)
	if err == nil && !slices.ContainsFunc(pods, func(p objects.AgentPod) bool { return p.Node != "" }) {
		err = fmt.Errorf("no pod of relink-agent is in namespace %s: name the right one by --namespace; agents that are services of systemd answer only on their nodes", c.namespace)
	}
	if err != nil {
		return r, err
	}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, nodeReport{Node: n.Name})
	}
	var asked atomic.Int64
	inparallel.Do(parallelAgents, len(r.Nodes), func(i int) {
		r.Nodes[i].ask(ctx, client, chosenPod(pods, r.Nodes[i].Node))
		if finished := asked.Add(1); progress != nil {
			progress(int(finished), len(r.Nodes))
		}
	})
	return r.sum(), ctx.Err()
}

// chosenPod returns the pod of the node that answers best, nil for none: while the DaemonSet replaces one, a node has two.
func chosenPod(pods []objects.AgentPod, node string) *objects.AgentPod {
	var chosen *objects.AgentPod
	for i, p := range pods {
		if p.Node == node && (chosen == nil || p.Ready && !p.Ending) {
			chosen = &pods[i]
		}
	}
	return chosen
}

// ask fills the report with the answer of the pod, nil for none.
func (n *nodeReport) ask(ctx context.Context, client *objects.Client, p *objects.AgentPod) {
	if p == nil {
		n.State, n.Reason = noAgent, "it has no pod of relink-agent"
		return
	}
	n.Pod, n.State = p.Name, noAnswer
	switch {
	case p.Unscheduled:
		n.Reason = "its pod waits for the scheduler"
		return
	case p.Port == 0:
		n.Reason = "its pod has no port with the name metrics"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agentLimit)
	defer cancel()
	page, err := client.AgentMetrics(ctx, *p)
	f, ok := parseFigures(page)
	if err == nil && !ok {
		err = errors.New("what its pod answers is no page of relink-agent")
	}
	if err != nil {
		n.Reason = printable.Joined(err)
		return
	}
	n.Figures, n.State = &f, asRecorded
	if f.Attachments[lost]+f.Attachments[drifted]+f.Unreadable > 0 {
		n.State = differs
	}
	n.Reason = strings.Join(f.reasons(), ", ")
}

// sum counts the nodes and their interfaces.
func (r clusterReport) sum() clusterReport {
	r.States, r.Attachments = map[nodeState]int{}, map[string]int{}
	for _, n := range r.Nodes {
		r.States[n.State]++
		if n.Figures == nil {
			continue
		}
		for state, count := range n.Figures.Attachments {
			r.Attachments[state] += count
		}
	}
	return r
}

// write writes a row for each node, and the totals.
func (r clusterReport) write(s *cli.Screen) {
	t := cli.NewTable("NODE | POD:wide | VERSION:2 | INTERFACES:1 | LOST | DRIFTED | STATE | WHY")
	for _, n := range r.Nodes {
		if s.Quiet && (n.State == asRecorded || n.State == noAgent) {
			continue
		}
		f, cells := n.Figures, []string{"", "", "", ""}
		if f != nil {
			cells = []string{f.Version, fmt.Sprint(countAll(f.Attachments)), fmt.Sprint(f.Attachments[lost]), fmt.Sprint(f.Attachments[drifted])}
		}
		t.Row(slices.Concat([]string{n.Node, n.Pod}, cells, []string{string(n.State), n.Reason})...)
	}
	t.Write(s)
	s.Info(r.summary())
}

// summary counts the nodes by state, and the interfaces that are not whole.
func (r clusterReport) summary() string {
	var parts []string
	for _, state := range []nodeState{asRecorded, differs, noAnswer, noAgent} {
		if n := r.States[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := fmt.Sprintf("%s: %s; %s", printable.Count(len(r.Nodes), "node"), strings.Join(parts, ", "), printable.Count(countAll(r.Attachments), "interface"))
	for _, state := range []string{lost, drifted} {
		if n := r.Attachments[state]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}

// countAll is the number of interfaces in all states.
func countAll(attachments map[string]int) (n int) {
	for _, count := range attachments {
		n += count
	}
	return n
}

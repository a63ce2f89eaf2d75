package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
)

var (
	agentTable table

	attachments     = agentTable.gauge("relink_attachments", "Interfaces of pods that have a checkpoint, by state: whole, lost with their NIC, drifted, or their sandbox was not found.", "state")
	baseAttachments = agentTable.gauge("relink_base_attachments", "Interfaces of pods on the NIC or bond.", "base")
	baseLost        = agentTable.gauge("relink_base_lost_attachments", "Interfaces of pods on the NIC or bond that are lost.", "base")
	baseState       = agentTable.gauge("relink_base_state", "1 for the state that the NIC or bond is in, 0 for the others.", "base", "state")
	baseSince       = agentTable.gauge("relink_base_state_since_timestamp_seconds", "When the present state of the NIC or bond began.", "base")
	baseNext        = agentTable.gauge("relink_base_next_try_timestamp_seconds", "When the agent tries again to restore what is on the NIC or bond, after a failure.", "base")
	owed            = agentTable.gauge("relink_announcements_owed", "Interfaces that are restored, but have no carrier: the agent has not told the neighbours yet.")
	paused          = agentTable.gauge("relink_agent_paused", "1 while the agent is paused, 0 otherwise.")
	pausedSince     = agentTable.gauge("relink_agent_paused_since_timestamp_seconds", "When the pause began. There is no series while the agent is not paused.")
	lastRound       = agentTable.gauge("relink_agent_last_round_timestamp_seconds", "When the working loop came round last.")
	unreadable      = agentTable.gauge("relink_checkpoints_unreadable", "Checkpoints that cannot be read.")
	captured        = agentTable.gauge("relink_checkpoint_captured_timestamp_seconds", "When the oldest and the newest checkpoint were written. A checkpoint is written only if its interface has changed.", "which")
	readings        = agentTable.counter("relink_checkpoint_readings_total", "How often the agent read a pod to keep its checkpoints fresh, by result: complete or failed.", "result")
	refreshes       = agentTable.counter("relink_checkpoint_refreshes_total", "How often the agent wrote a checkpoint anew because its interface had changed.")
	refusals        = agentTable.counter("relink_checkpoint_refusals_total", "How often the agent kept a checkpoint because its interface was worse than recorded.")
	overruns        = agentTable.counter("relink_agent_overruns_total", "How often the kernel sent more messages than the agent could read, by watch: host or pods. The agent then looks at everything anew.", "watch")
)

// showAgent shows the state of an agent at the moment of the question.
func showAgent(a Agent, show show) {
	status, f := a.Status(), a.Figures()
	bases := basesOf(status.Chains)
	total, lost := 0, 0
	for name, b := range bases {
		total, lost = total+b.attachments, lost+b.lost
		b.show(name, show)
	}
	drifted := len(status.Drift)
	show(attachments, float64(max(total-lost-drifted, 0)), "whole")
	show(attachments, float64(lost), "lost")
	show(attachments, float64(drifted), "drifted")
	show(attachments, float64(f.Absent), "sandbox_gone")
	show(owed, float64(status.Unannounced))
	show(paused, boolValue(status.Paused != nil))
	if status.Paused != nil {
		show(pausedSince, timestamp(status.Paused.Since))
	}
	show(lastRound, timestamp(f.LastRound))
	show(unreadable, float64(f.Unreadable))
	if !f.Oldest.IsZero() {
		show(captured, timestamp(f.Oldest), "oldest")
		show(captured, timestamp(f.Newest), "newest")
	}
	show(readings, float64(f.Refresher.Readings), "complete")
	show(readings, float64(f.Refresher.Failures), failed)
	show(refreshes, float64(f.Refresher.Refreshes))
	show(refusals, float64(f.Refresher.Refusals))
	show(overruns, float64(f.Refresher.Overruns), "pods")
	show(overruns, float64(f.HostOverruns), "host")
}

// base sums up the chains with one base.
type base struct {
	attachments, lost int
	state             control.ChainState
	since, next       time.Time
}

// inPods stands for the base of interfaces that are on nothing in the host, such as a NIC that was moved into its pod.
const inPods = "in pods"

// states are all states of a chain, the worst one last. If several chains have one base, the worst state counts.
var states = []control.ChainState{control.Whole, control.Restoring, control.Waiting, control.Lost, control.BackingOff}

// basesOf sums up the chains by their bases. Two chains may have the same base name. All NICs in pods count as one
// base.
func basesOf(chains []control.Chain) map[string]*base {
	bases := map[string]*base{}
	for _, c := range chains {
		name := c.Base
		if name == "" {
			name = inPods
		}
		b := bases[name]
		if b == nil {
			b = &base{state: control.Whole, since: c.Since}
			bases[name] = b
		}
		b.attachments, b.lost = b.attachments+c.Attachments, b.lost+c.Lost
		if rank(c.State) > rank(b.state) {
			b.state, b.since = c.State, c.Since
		}
		if c.State == control.BackingOff && (b.next.IsZero() || c.NextTry.Before(b.next)) {
			b.next = c.NextTry
		}
	}
	return bases
}

func rank(s control.ChainState) int { return slices.Index(states, s) }

func (b base) show(name string, show show) {
	show(baseAttachments, float64(b.attachments), name)
	show(baseLost, float64(b.lost), name)
	for _, s := range states {
		show(baseState, boolValue(s == b.state), name, strings.ReplaceAll(string(s), " ", "_"))
	}
	show(baseSince, timestamp(b.since), name)
	if !b.next.IsZero() {
		show(baseNext, timestamp(b.next), name)
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func timestamp(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

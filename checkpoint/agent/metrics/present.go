package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
)

// showAgent shows the state of an agent at the moment of the question.
func showAgent(a Agent, p page) {
	status, f := a.Status(), a.Figures()
	bases := basesOf(status.Chains)
	total, lost := 0, 0
	for name, b := range bases {
		total, lost = total+b.attachments, lost+b.lost
		b.show(p.with("base", name))
	}
	drifted := len(status.Drift)
	for state, count := range map[string]int{"whole": max(total-lost-drifted, 0), "lost": lost, "drifted": drifted, "sandbox_gone": f.Absent} {
		gauge(p.with("state", state), "relink_attachments", "Interfaces of pods that have a checkpoint, by state: whole, lost with their NIC, drifted, or their sandbox was not found.", count)
	}
	showUnrecorded(status.Unrecorded, p)
	gauge(p, "relink_announcements_owed", "Interfaces that are restored, but have no carrier: the agent has not told the neighbours yet.", status.Unannounced)
	gauge(p, "relink_agent_paused", "1 while the agent is paused, 0 otherwise.", status.Paused != nil)
	if status.Paused != nil {
		gauge(p, "relink_agent_paused_since_timestamp_seconds", "When the pause began. There is no series while the agent is not paused.", status.Paused.Since)
	}
	gauge(p, "relink_agent_last_round_timestamp_seconds", "When the working loop came round last.", f.LastRound)
	gauge(p, "relink_checkpoints_unreadable", "Checkpoints that cannot be read.", f.Unreadable)
	for age, captured := range map[string]time.Time{"oldest": f.Oldest, "newest": f.Newest} {
		gauge(p.with("which", age), "relink_checkpoint_captured_timestamp_seconds", "When the oldest and the newest checkpoint were written. A checkpoint is written only if its interface has changed.", captured)
	}
	for result, count := range map[string]uint64{"complete": f.Refresher.Readings, failed: f.Refresher.Failures} {
		counter(p.with("result", result), "relink_checkpoint_readings_total", "How often the agent read a pod to keep its checkpoints fresh, by result: complete or failed.", count)
	}
	counter(p, "relink_checkpoint_refreshes_total", "How often the agent wrote a checkpoint anew because its interface had changed.", f.Refresher.Refreshes)
	counter(p, "relink_checkpoint_refusals_total", "How often the agent kept a checkpoint because its interface was worse than recorded.", f.Refresher.Refusals)
	counter(p, "relink_first_checkpoints_total", "How often the agent wrote the first checkpoint of an interface that another program had attached.", f.Refresher.Recordings)
	counter(p, "relink_forgotten_checkpoints_total", "How often the agent dropped a checkpoint because another program had detached the interface, or its sandbox was gone.", f.Refresher.Forgotten)
	for watch, count := range map[string]uint64{"pods": f.Refresher.Overruns, "host": f.HostOverruns} {
		counter(p.with("watch", watch), "relink_agent_overruns_total", "How often the kernel sent more messages than the agent could read, by watch: host or pods. The agent then looks at everything anew.", count)
	}
}

// showUnrecorded shows how many interfaces have no checkpoint, by base and reason. Each reason has a series, so that rules see the 0.
func showUnrecorded(unrecorded []control.Unrecorded, p page) {
	type group struct{ base, obstacle string }
	counts := map[group]int{}
	for _, o := range capture.Obstacles {
		counts[group{inPods, string(o)}] = 0
	}
	for _, u := range unrecorded {
		counts[group{cmp.Or(u.Base, inPods), u.Obstacle}]++
	}
	for g, count := range counts {
		gauge(p.with("base", g.base).with("reason", g.obstacle), "relink_unrecorded_interfaces", "Interfaces of pods on devices of the node that have no checkpoint, by base and reason: nothing restores them.", count)
	}
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
func basesOf(chains []control.Chain) map[string]base {
	bases := map[string]base{}
	for _, c := range chains {
		name := cmp.Or(c.Base, inPods)
		b := bases[name]
		b.attachments, b.lost = b.attachments+c.Attachments, b.lost+c.Lost
		if rank(c.State) > rank(b.state) {
			b.state, b.since = c.State, c.Since
		}
		if c.State == control.BackingOff && (b.next.IsZero() || c.NextTry.Before(b.next)) {
			b.next = c.NextTry
		}
		bases[name] = b
	}
	return bases
}

// rank orders states. That of no chain comes first.
func rank(s control.ChainState) int { return slices.Index(states, s) }

func (b base) show(p page) {
	gauge(p, "relink_base_attachments", "Interfaces of pods on the NIC or bond.", b.attachments)
	gauge(p, "relink_base_lost_attachments", "Interfaces of pods on the NIC or bond that are lost.", b.lost)
	for _, s := range states {
		gauge(p.with("state", strings.ReplaceAll(string(s), " ", "_")), "relink_base_state", "1 for the state that the NIC or bond is in, 0 for the others.", s == b.state)
	}
	gauge(p, "relink_base_state_since_timestamp_seconds", "When the present state of the NIC or bond began.", b.since)
	gauge(p, "relink_base_next_try_timestamp_seconds", "When the agent tries again to restore what is on the NIC or bond, after a failure.", b.next)
}

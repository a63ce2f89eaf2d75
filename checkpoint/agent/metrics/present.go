package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/relink-cni/relink/checkpoint/control"
)

// agentCollector shows the state of an agent at the moment of the question.
type agentCollector struct{ agent Agent }

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	attachments     = newDesc("relink_attachments", "Interfaces of pods that have a checkpoint, by state: whole, lost with their NIC, drifted, or their sandbox was not found.", "state")
	baseAttachments = newDesc("relink_base_attachments", "Interfaces of pods on the NIC or bond.", "base")
	baseLost        = newDesc("relink_base_lost_attachments", "Interfaces of pods on the NIC or bond that are lost.", "base")
	baseState       = newDesc("relink_base_state", "1 for the state that the NIC or bond is in, 0 for the others.", "base", "state")
	baseSince       = newDesc("relink_base_state_since_timestamp_seconds", "When the present state of the NIC or bond began.", "base")
	baseNext        = newDesc("relink_base_next_try_timestamp_seconds", "When the agent tries again to restore what is on the NIC or bond, after a failure.", "base")
	owed            = newDesc("relink_announcements_owed", "Interfaces that are restored, but have no carrier: the agent has not told the neighbours yet.")
	paused          = newDesc("relink_agent_paused", "1 while the agent is paused, 0 otherwise.")
	pausedSince     = newDesc("relink_agent_paused_since_timestamp_seconds", "When the pause began. There is no series while the agent is not paused.")
	lastRound       = newDesc("relink_agent_last_round_timestamp_seconds", "When the working loop came round last.")
	unreadable      = newDesc("relink_checkpoints_unreadable", "Checkpoints that cannot be read.")
	captured        = newDesc("relink_checkpoint_captured_timestamp_seconds", "When the oldest and the newest checkpoint were written. A checkpoint is written only if its interface has changed.", "which")
	readings        = newDesc("relink_checkpoint_readings_total", "How often the agent read a pod to keep its checkpoints fresh, by result: complete or failed.", "result")
	refreshes       = newDesc("relink_checkpoint_refreshes_total", "How often the agent wrote a checkpoint anew because its interface had changed.")
	refusals        = newDesc("relink_checkpoint_refusals_total", "How often the agent kept a checkpoint because its interface was worse than recorded.")
	overruns        = newDesc("relink_agent_overruns_total", "How often the kernel sent more messages than the agent could read, by watch: host or pods. The agent then looks at everything anew.", "watch")
)

// Describe implements prometheus.Collector.
func (p agentCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		attachments, baseAttachments, baseLost, baseState, baseSince, baseNext, owed, paused, pausedSince, lastRound, unreadable, captured,
		readings, refreshes, refusals, overruns,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p agentCollector) Collect(ch chan<- prometheus.Metric) {
	status, f := p.agent.Status(), p.agent.Figures()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	bases := basesOf(status.Chains)
	total, lost := 0, 0
	for name, b := range bases {
		total, lost = total+b.attachments, lost+b.lost
		b.collect(name, gauge)
	}
	drifted := len(status.Drift)
	gauge(attachments, float64(max(total-lost-drifted, 0)), "whole")
	gauge(attachments, float64(lost), "lost")
	gauge(attachments, float64(drifted), "drifted")
	gauge(attachments, float64(f.Absent), "sandbox_gone")
	gauge(owed, float64(status.Unannounced))
	gauge(paused, boolValue(status.Paused != nil))
	if status.Paused != nil {
		gauge(pausedSince, timestamp(status.Paused.Since))
	}
	gauge(lastRound, timestamp(f.LastRound))
	gauge(unreadable, float64(f.Unreadable))
	if !f.Oldest.IsZero() {
		gauge(captured, timestamp(f.Oldest), "oldest")
		gauge(captured, timestamp(f.Newest), "newest")
	}
	count(readings, f.Refresher.Readings, "complete")
	count(readings, f.Refresher.Failures, failed)
	count(refreshes, f.Refresher.Refreshes)
	count(refusals, f.Refresher.Refusals)
	count(overruns, f.Refresher.Overruns, "pods")
	count(overruns, f.HostOverruns, "host")
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

func rank(s control.ChainState) int {
	for i, state := range states {
		if s == state {
			return i
		}
	}
	return 0
}

func (b base) collect(name string, gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(baseAttachments, float64(b.attachments), name)
	gauge(baseLost, float64(b.lost), name)
	for _, s := range states {
		gauge(baseState, boolValue(s == b.state), name, strings.ReplaceAll(string(s), " ", "_"))
	}
	gauge(baseSince, timestamp(b.since), name)
	if !b.next.IsZero() {
		gauge(baseNext, timestamp(b.next), name)
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func timestamp(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

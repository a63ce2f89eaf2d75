package agent

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/printable"
)

// updateStatus makes the answer to Status.
func (a *Agent) updateStatus() {
	s := control.Status{Version: a.Version, PID: os.Getpid(), StartedAt: a.started.UTC(), Paused: a.paused, Chains: []control.Chain{}, Drift: []control.Drift{}}
	for m := range a.concerns {
		if d := m.drift; d != nil && (d.persistent || d.Confirmed) { // Other findings can end within a moment.
			s.Drift = append(s.Drift, d.Drift)
		}
	}
	slices.SortFunc(s.Drift, func(a, b control.Drift) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
	for _, c := range a.chains {
		s.Chains = append(s.Chains, c.decided.Chain)
		s.Unannounced += c.owed
	}
	figures := a.countFigures()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.figures = s, figures
}

// logTry logs what a restore has done. After a failure the agent tries again.
func (a *Agent) logTry(c *chain, e restoreEnd) {
	counts := map[change.State]int{}
	for _, o := range e.result.Outcomes {
		counts[o.State]++
	}
	if whole := counts[restore.Restored] + counts[restore.Repaired]; whole > 0 {
		a.Log.Info("interfaces are restored", "base", c.name(), "attachments", whole, "took", e.duration.Round(time.Microsecond*100),
			"sinceLoss", elapsed(c.lostAt), "sinceBack", elapsed(c.backAt), "owed", e.result.CountPending())
	}
	for _, step := range e.result.Parents {
		if step.Error == "" {
			a.Log.Info("the host is changed", "step", step.String(), "why", printable.Line(step.Reason))
		}
	}
	if c.view.failure != "" {
		a.Log.Warn("a restore failed", "base", c.name(), "failed", counts[change.Failed], "why", printable.Line(c.view.failure), "nextTry", backoff(c.view.failures))
	}
}

// elapsed returns the time since t, 0 if t is zero.
func elapsed(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Round(time.Microsecond * 100)
}

package guard

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/printable"
)

// check looks whether everything is as recorded. It also asks which gateways answer.
func (g *guard) check(ctx context.Context) error {
	report, err := restore.Run(ctx, restore.Options{Store: g.Store, DryRun: true})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	var wrong []trouble
	for _, o := range report.Outcomes {
		if o.Differs() {
			wrong = append(wrong, trouble{o.SandboxName(), o.FullReason()})
		}
	}
	if err := g.unlessForced(append(wrong, newTroubles("", report.Problems...)...), "not everything is as recorded", "relink check shows it, relink restore repairs it"); err != nil {
		return err
	}
	gateways, err := gatewaysBefore(g.Store)
	if err != nil {
		return err
	}
	g.journal.Gateways = answeringGateways(ctx, g.Store, gateways, probeBefore)
	g.logf("%s checked; gateways that answer: %d of %d", printable.Count(len(report.Outcomes), "attachment"), len(g.journal.Gateways), len(gateways))
	if silent := len(gateways) - len(g.journal.Gateways); silent > 0 {
		g.notef("%s did not answer before: guard cannot ask there whether pods are back", printable.Count(silent, "gateway"))
	}
	return nil
}

// capture writes the checkpoints that are missing.
func (g *guard) capture(ctx context.Context) error {
	report, err := capture.Run(ctx, capture.Options{Store: g.Store, CacheDir: g.journal.Plan.CacheDir})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	records, _, err := g.Store.List()
	if err != nil {
		return err
	}
	g.journal.Checkpoints = len(records)
	if captured := report.Count(capture.Captured) + report.Count(capture.Refreshed); captured > 0 {
		g.logf("captured %s", printable.Count(captured, "interface"))
	}
	return g.unlessForced(troublesIn(report), "without a checkpoint nothing is restored", "relink capture shows it")
}

// agentPatience is how long a pause waits for a restore of the agent to end.
const agentPatience = 30 * time.Second

// agentMargin is how long the agent stays paused after the deadline if the guard was killed.
const agentMargin = time.Minute

// pauseAgent pauses the agent, if one runs. An earlier pause stays if it has no end, or if it ends later.
func (g *guard) pauseAgent(ctx context.Context) error {
	status, err := g.agent.Status(ctx)
	if errors.Is(err, control.ErrNoAgent) {
		return nil
	} else if err != nil {
		return g.pauseFailure(err)
	}
	length := g.journal.Plan.maxDowntime() + agentMargin
	if before := status.Paused; before != nil {
		if remaining, limited := before.Remaining(); !limited || remaining > length {
			g.logf("relink-agent is paused already, and stays so")
			return nil
		}
	}
	// Note the pause before it begins: the process that finishes the work of this guard must know.
	g.journal.AgentPaused = true
	if err := g.journal.save(g.dir); err != nil {
		return err
	}
	agent := g.agent
	agent.Patience = agentPatience
	if _, err := agent.Pause(ctx, length, "relink guard"); err != nil {
		return g.pauseFailure(err)
	}
	g.logf("relink-agent is paused")
	return nil
}

// pauseFailure is for an agent that runs but could not be paused. It may restore while the command runs.
func (g *guard) pauseFailure(err error) error {
	return g.unlessForced(newTroubles("", err.Error()), "relink-agent is not paused", "systemctl status relink-agent shows more")
}

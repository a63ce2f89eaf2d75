package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
)

// wait returns how long to wait for devices. A guard that is late waits for none: the kubelet comes first.
func (g *guard) wait() time.Duration {
	if g.isOverdue() {
		return 0
	}
	return g.journal.Plan.Wait
}

// restore brings the interfaces back.
func (g *guard) restore(ctx context.Context) error {
	p := g.journal.Plan
	report, err := restore.Run(ctx, restore.Options{
		Store: g.Store, Wait: g.wait(), HostAddresses: p.HostAddresses, ParentOptions: restore.ParentOptions{RebuildBond: p.RebuildBond},
		Waiting: restore.TellWaiting(g.wait(), "", func(text string) { g.logf("waiting: %s", text) }),
	})
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	back := 0
	for _, o := range report.Outcomes {
		switch {
		case o.Differs():
			g.notBack(o.SandboxName(), o.FullReason())
		case o.State == restore.Restored || o.State == restore.Repaired:
			back++
		}
	}
	g.notBack("", report.Problems...)
	for _, note := range report.Notes {
		g.notef("%s", note)
	}
	g.logf("restored or repaired %s in %s", printable.Count(back, "attachment"), report.Duration.Round(time.Millisecond))
	return nil
}

// reportMissing says that checkpoints have vanished: nobody could bring their interfaces back. Pods end while the kubelet goes on.
func (g *guard) reportMissing() {
	records, _, err := g.Store.List()
	if err != nil || len(records) >= g.journal.Checkpoints {
		return
	}
	text := fmt.Sprintf("there are %d checkpoints, and there were %d: pods have ended, or somebody has deleted checkpoints", len(records), g.journal.Checkpoints)
	if len(g.journal.Units) > 0 {
		g.notBack("", text)
	} else {
		g.notef("%s", text)
	}
}

// verify asks the gateways that answered before.
func (g *guard) verify(ctx context.Context) error {
	g.reportMissing()
	if len(g.journal.Gateways) == 0 {
		return nil
	}
	opts := probeAfter
	if g.isOverdue() {
		opts = probeBefore
	}
	answered := answeringGateways(ctx, g.Store, g.journal.Gateways, opts)
	g.logf("gateways that answer: %d of %d", len(answered), len(g.journal.Gateways))
	for _, gateway := range g.journal.Gateways {
		if !slices.Contains(answered, gateway) && !g.isDetached(gateway.Attachment) {
			g.notBack(interfaceName(change.Outcome{Attachment: gateway.Attachment, Pod: gateway.Pod}), fmt.Sprintf("its gateway %s does not answer", gateway.Target))
		}
	}
	return nil
}

// isDetached says whether the attachment was detached during the guard, or its sandbox is gone.
func (g *guard) isDetached(key attachment.Key) bool {
	r, err := g.Store.Load(key.ContainerID, key.IfName)
	return errors.Is(err, checkpoint.ErrNoCheckpoint) || err == nil && kernel.NotFound(r.Namespace)
}

// resumeAgent ends the guard's pause.
func (g *guard) resumeAgent(ctx context.Context) error {
	if !g.journal.AgentPaused {
		return nil
	}
	if err := g.agent.Resume(ctx); err != nil {
		// A guard's pause ends by itself. An agent that is gone has no pause.
		g.notef("relink-agent goes on by itself %s after its pause at most: %v", g.journal.Plan.maxDowntime()+agentMargin, err)
		return nil
	}
	g.logf("relink-agent goes on")
	return nil
}

// report says what became of everything, and finishes the journal.
func (g *guard) report(context.Context) error {
	g.journal.Status, g.journal.Finished = ExitStatus(g.journal), time.Now().UTC()
	if g.journal.Abandoned != "" {
		g.logf("the command was not run: %s", g.journal.Abandoned)
	} else {
		g.logf("the command %s", g.journal.Run.text())
	}
	for _, survivor := range g.journal.Run.Remaining {
		g.logf("the command has left a process behind: %s", survivor)
	}
	for _, note := range g.notes {
		g.logf("note: %s", note)
	}
	for _, trouble := range g.journal.Troubles {
		g.logf("NOT BACK: %s", trouble)
	}
	if len(g.journal.Troubles) > 0 {
		g.logf("not all is back: see above, and relink status")
	} else if g.journal.isBegun(RunCommand) {
		g.logf("everything is back")
	}
	g.logf("relink guard took %s, and ends with exit status %d", g.journal.Finished.Sub(g.journal.StartedAt).Round(time.Millisecond), g.journal.Status)
	return nil
}

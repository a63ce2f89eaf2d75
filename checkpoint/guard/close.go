package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
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
	waited := map[string]bool{}
	report, err := restore.Run(ctx, restore.Options{
		Store: g.Store, Wait: g.wait(), HostAddresses: p.HostAddresses, ParentOptions: restore.ParentOptions{RebuildBond: p.RebuildBond},
		Waiting: func(reasons []string) {
			for _, r := range reasons {
				if !waited[r] {
					waited[r] = true
					g.logf("waiting: %s", r)
				}
			}
		},
	})
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	back := 0
	for _, o := range report.Outcomes {
		switch {
		case o.Differs():
			g.notBack(sandboxName(o.Pod, o.Attachment), o.FullReason())
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

// removalPatience is how long after a DEL a runtime needs at most to remove the sandbox.
const removalPatience = 3 * time.Second

// reportMissing reports each checkpoint that vanished, unless a runtime has detached the interface or the sandbox is proven gone.
// Nobody could bring its interface back. Some runtimes keep the sandbox of a pod that has ended, and Multus detaches from
// pods that live on: then libcni has removed what it had cached of the ADD.
func (g *guard) reportMissing(ctx context.Context) {
	vanished := slices.DeleteFunc(slices.Clone(g.journal.Attachments), func(recorded RecordedAttachment) bool {
		_, err := g.Store.Load(recorded.Attachment.ContainerID, recorded.Attachment.IfName)
		return !errors.Is(err, checkpoint.ErrNoCheckpoint)
	})
	for deadline := time.Now().Add(removalPatience); len(vanished) > 0; time.Sleep(removalPatience / 10) {
		var namespaces []attachment.Namespace
		for _, recorded := range vanished {
			namespaces = append(namespaces, recorded.Namespace)
		}
		goneNamespaces := sandbox.ProvenGone(ctx, sandbox.SeesAllProcesses(), namespaces...) // One proof for all: it reads all of /proc.
		cached, err := g.cached()
		vanished = slices.DeleteFunc(vanished, func(recorded RecordedAttachment) bool {
			return goneNamespaces[recorded.Namespace] || err == nil && recorded.Cached && !cached[recorded.Attachment]
		})
		if time.Now().After(deadline) {
			break
		}
	}
	for _, recorded := range vanished {
		g.notBack(interfaceName(recorded.Pod, recorded.Attachment), "its checkpoint has vanished, and its sandbox is not proven gone: recreate the pod")
	}
}

// cached are the attachments that are in the caches of libcni and Multus. An error says that it may not have all of them.
func (g *guard) cached() (map[attachment.Key]bool, error) {
	attachments := map[attachment.Key]bool{}
	if g.journal.Plan.CacheDir == "" {
		return attachments, nil
	}
	entries, unreadable, err := cnicache.Read(g.journal.Plan.CacheDir)
	for _, e := range entries {
		attachments[e.Attachment] = true
	}
	return attachments, errors.Join(append(unreadable, err)...)
}

// verify asks the gateways that answered before.
func (g *guard) verify(ctx context.Context) error {
	g.reportMissing(ctx)
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
			g.notBack(interfaceName(gateway.Pod, gateway.Attachment), fmt.Sprintf("its gateway %s does not answer", gateway.Target))
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
		g.logf("not all is back: relink status shows what is wrong")
	} else if g.journal.isBegun(RunCommand) {
		g.logf("everything is back")
	}
	g.logf("relink guard took %s, and ends with exit status %d", g.journal.Finished.Sub(g.journal.StartedAt).Round(time.Millisecond), g.journal.Status)
	return nil
}

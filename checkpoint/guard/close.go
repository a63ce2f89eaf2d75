package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// await waits for the command of a killed guard. Nobody can learn the command's exit status any more. At the limit,
// await ends the command.
func (g *guard) await() error {
	p, r := g.j.Plan, &g.j.Run
	for signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}; ; {
		alive := g.commandAlive()
		if len(alive) == 0 {
			break
		}
		if g.j.sinceBegun(Command) < p.Limit && !r.Interrupted {
			select {
			case <-g.signals:
				r.Interrupted = true
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if len(signals) == 0 {
			r.Endless = true
			return fmt.Errorf("the command does not end, not even by SIGKILL: %s", alive[0])
		}
		r.LimitPassed = !r.Interrupted
		g.say("the command gets %s", signalName(signals[0]))
		for _, process := range alive {
			_ = syscall.Kill(process.pid, signals[0])
		}
		signals = signals[1:]
		for end := time.Now().Add(p.KillAfter); len(g.commandAlive()) > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	g.noteLeft(0)
	g.say("the command %s", r.text())
	return nil
}

// commandAlive returns the command's first process if it lives. After the limit, it returns all living processes of the
// command.
func (g *guard) commandAlive() []process {
	all := ofCommand(g.j.ID, 0)
	if g.j.Run.PID == 0 || g.j.Run.LimitPassed {
		return all
	}
	return slices.DeleteFunc(all, func(p process) bool { return p.pid != g.j.Run.PID })
}

// late says that units are still stopped, but should run by now.
func (g *guard) late() bool {
	return g.j.begun(Stop) && len(g.j.ran()) > 0 && g.j.sinceBegun(Stop) > g.j.Plan.most()
}

// restore brings the interfaces back. A guard that is late waits for no device: the kubelet comes first.
func (g *guard) restore(ctx context.Context) error {
	p := g.j.Plan
	wait := p.Wait
	if g.late() {
		wait = 0
	}
	waited := map[string]bool{}
	report, err := restore.Run(ctx, restore.Options{
		Store: g.Store, Wait: wait, HostAddresses: p.HostAddresses, ParentOptions: restore.ParentOptions{RebuildBond: p.RebuildBond},
		Waiting: func(reasons []string) {
			for _, r := range reasons {
				if !waited[r] {
					waited[r] = true
					g.say("waiting: %s", r)
				}
			}
		},
	})
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	back := 0
	for _, o := range report.Attachments {
		switch {
		case o.Differs():
			g.trouble("%s: %s", nameOf(o), o.Why())
		case o.State == restore.Restored || o.State == restore.Repaired:
			back++
		}
	}
	for _, problem := range report.Problems {
		g.trouble("%s", problem)
	}
	for _, note := range report.Notes {
		g.note("%s", note)
	}
	g.say("restored or repaired %s in %s", count(back, "attachment"), report.Took.Round(time.Millisecond))
	return nil
}

// removedWithin is how long after a DEL a runtime needs at most to remove the sandbox.
const removedWithin = 3 * time.Second

// missing reports each checkpoint that vanished, unless a runtime has detached the interface or the sandbox is proven gone.
// Nobody could bring its interface back. Some runtimes keep the sandbox of a pod that has ended, and Multus detaches from
// pods that live on: then libcni has removed what it had cached of the ADD.
func (g *guard) missing(ctx context.Context) {
	vanished := slices.DeleteFunc(slices.Clone(g.j.Attachments), func(was Remembered) bool {
		_, err := g.Store.Load(was.Attachment.ContainerID, was.Attachment.IfName)
		return !errors.Is(err, checkpoint.ErrNone)
	})
	for deadline := time.Now().Add(removedWithin); len(vanished) > 0; time.Sleep(removedWithin / 10) {
		var at []attachment.Namespace
		for _, was := range vanished {
			at = append(at, was.Namespace)
		}
		gone := sandbox.Gone(ctx, sandbox.SeesAllProcesses(), at...) // One proof for all: it reads all of /proc.
		cached, err := g.cached()
		vanished = slices.DeleteFunc(vanished, func(was Remembered) bool {
			return gone[was.Namespace] || err == nil && was.Cached && !cached[was.Attachment]
		})
		if time.Now().After(deadline) {
			break
		}
	}
	for _, was := range vanished {
		g.trouble("%s %s: its checkpoint has vanished, and its sandbox is not proven gone: recreate the pod",
			cmp.Or(when(was.Pod.Name != "", was.Pod.String()), "sandbox "+was.Attachment.ContainerID), was.Attachment.IfName)
	}
}

// cached are the attachments that are in the caches of libcni and Multus. An error says that it may not have all of them.
func (g *guard) cached() (map[attachment.Key]bool, error) {
	all := map[attachment.Key]bool{}
	if g.CacheDir == "" {
		return all, nil
	}
	entries, unreadable, err := cnicache.Read(g.CacheDir)
	for _, e := range entries {
		all[e.Attachment] = true
	}
	return all, errors.Join(append(unreadable, err)...)
}

// verify asks the gateways that answered before.
func (g *guard) verify(ctx context.Context) error {
	g.missing(ctx)
	if len(g.j.Gateways) == 0 {
		return nil
	}
	opts := askAfter
	if g.late() {
		opts = askBefore
	}
	answered, err := answering(ctx, g.Store, g.j.Gateways, opts)
	if err != nil {
		return err
	}
	g.say("gateways that answer: %d of %d", len(answered), len(g.j.Gateways))
	for _, gateway := range g.j.Gateways {
		if !slices.Contains(answered, gateway) && !g.gone(gateway.Attachment) {
			g.trouble("%s %s: its gateway %s does not answer", gateway.Pod, gateway.Attachment.IfName, gateway.Of)
		}
	}
	return nil
}

// gone says whether the attachment was detached during the guard, or its sandbox is gone.
func (g *guard) gone(key attachment.Key) bool {
	records, _, err := g.Store.List()
	if err != nil {
		return false
	}
	for _, r := range records {
		if r.Attachment == key {
			return isGone(r)
		}
	}
	return true
}

// start starts the units that ran. If one fails, it still tries the others.
func (g *guard) start(ctx context.Context) error {
	var failed []string
	for _, unit := range g.j.ran() {
		if err := g.units.start(ctx, unit); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", unit, err))
			continue
		}
		g.say("%s is started, %s after it was stopped", unit, g.j.sinceBegun(Stop).Round(time.Millisecond))
	}
	if len(failed) > 0 {
		return fmt.Errorf("not started: %s: start it yourself by systemctl start %s", strings.Join(failed, "; "), unitsOf(g.j.ran()))
	}
	return nil
}

// resume ends the guard's pause. If the agent was paused before the guard, resume brings back that pause.
func (g *guard) resume(ctx context.Context) error {
	a := g.j.Agent
	if !a.Paused {
		return nil
	}
	var err error
	if left := a.left(); left > 0 {
		_, err = g.agent.Pause(ctx, left, a.Before.Why)
	} else {
		err = g.agent.Resume(ctx)
	}
	if err != nil {
		// A guard's pause ends by itself. An agent that is gone has no pause.
		g.note("relink-agent goes on by itself at %s: %v", time.Now().Add(g.j.Plan.most()+agentMargin-g.j.sinceBegun(Pause)).Local().Format("15:04:05"), err)
		return nil
	}
	g.say("relink-agent goes on")
	return nil
}

// left returns the rest of the pause from before the guard. It is 0 if there was none, or if it would be over.
func (a AgentWas) left() time.Duration {
	if a.Before == nil {
		return 0
	}
	left, _ := a.Before.Left()
	return left
}

// report says what became of everything, and finishes the journal.
func (g *guard) report() {
	g.j.Status, g.j.Finished = ExitStatus(g.j), time.Now().UTC()
	if g.j.Abandoned != "" {
		g.insist("the command was not run: %s", g.j.Abandoned)
	} else {
		g.say("the command %s", g.j.Run.text())
	}
	for _, left := range g.j.Run.Left {
		g.say("the command has left a process behind: %s", left)
	}
	for _, note := range g.notes {
		g.say("note: %s", note)
	}
	for _, trouble := range g.j.Troubles {
		g.insist("NOT BACK: %s", trouble)
	}
	if len(g.j.Troubles) == 0 && g.j.begun(Command) {
		g.say("everything is back")
	} else if len(g.j.Troubles) > 0 {
		g.insist("%s not back: relink status shows what is wrong%s", count(len(g.j.Troubles), "thing"),
			when(len(g.j.Troubles) > g.j.Staying, ", relink restore tries again"))
	}
	g.say("relink guard took %s, and ends with exit status %d", g.j.sinceBegun(g.j.Steps[0].Step).Round(time.Millisecond), g.j.Status)
}

package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/adopt"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/printable"
)

// shownReasons is how many reasons one line names.
const shownReasons = 3

// check looks whether everything is as recorded. It also asks which gateways answer.
func (g *guard) check(ctx context.Context) error {
	report, err := restore.Run(ctx, restore.Options{Store: g.Store, DryRun: true})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if wrong := wrongIn(report); len(wrong) > 0 {
		if !g.j.Plan.Force {
			return fmt.Errorf("not everything is as recorded: %s: relink check shows it, relink restore repairs it, --force goes on all the same", some(wrong))
		}
		g.note("not everything was as recorded before: %s", some(wrong))
	}
	if err := g.remember(); err != nil {
		return err
	}
	all, answered, err := gatewaysBefore(ctx, g.Store)
	if err != nil {
		return err
	}
	g.j.Gateways = answered
	g.say("%s checked; gateways that answer: %d of %d", count(len(report.Attachments), "attachment"), len(answered), len(all))
	if silent := len(all) - len(answered); silent > 0 {
		g.note("%s did not answer before: guard cannot ask there whether pods are back", count(silent, "gateway"))
	}
	return nil
}

// remember notes in the journal which attachments have a checkpoint. A restore does not miss what has none.
func (g *guard) remember() error {
	records, _, err := g.Store.List()
	if err != nil {
		return err
	}
	g.j.Attachments = nil
	cached, _ := g.cached() // Of what it does not have, nobody says that it has left the cache.
	for _, r := range records {
		g.j.Attachments = append(g.j.Attachments, Remembered{Attachment: r.Attachment, Pod: r.Pod, Namespace: r.Namespace, Cached: cached[r.Attachment]})
	}
	return nil
}

// wrongIn returns a line for each thing that is not as recorded.
func wrongIn(report restore.Report) (wrong []string) {
	for _, o := range report.Attachments {
		if o.Differs() {
			wrong = append(wrong, nameOf(o)+": "+o.Why())
		}
	}
	return append(wrong, report.Problems...)
}

func nameOf(o restore.Outcome) string {
	if o.Pod.Name == "" {
		return "sandbox " + o.Attachment.ContainerID
	}
	return o.Pod.String()
}

// some names the first few of all.
func some(all []string) string {
	if len(all) <= shownReasons {
		return strings.Join(all, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(all[:shownReasons], "; "), len(all)-shownReasons)
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// capture writes the checkpoints that are missing.
func (g *guard) capture(ctx context.Context) error {
	report, err := adopt.Run(ctx, adopt.Options{Store: g.Store, CacheDir: g.j.Plan.CacheDir})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := g.remember(); err != nil {
		return err
	}
	captured := 0
	var without []string
	for _, o := range report.Interfaces {
		switch o.State {
		case adopt.Captured, adopt.Refreshed:
			captured++
		case adopt.Refused, adopt.Failed:
			without = append(without, fmt.Sprintf("%s %s: %s", o.Pod, o.Attachment.IfName, o.Reason))
		}
	}
	without = append(without, report.Problems...)
	if captured > 0 {
		g.say("captured %s", count(captured, "interface"))
	}
	if len(without) == 0 {
		return nil
	}
	if !g.j.Plan.Force {
		return fmt.Errorf("without a checkpoint nothing is restored: %s: relink capture shows it, --force goes on all the same", some(without))
	}
	g.note("without a checkpoint: %s", some(without))
	return nil
}

// agentPatience is how long a pause waits for a restore of the agent to end.
const agentPatience = 30 * time.Second

// agentMargin is how long the agent stays paused after the deadline if the guard was killed.
const agentMargin = time.Minute

// pause pauses the agent, if one runs. An earlier pause stays if it has no end, or if it ends later.
func (g *guard) pause(ctx context.Context) error {
	status, err := g.agent.Status(ctx)
	if errors.Is(err, control.ErrNoAgent) {
		return nil
	} else if err != nil {
		return g.unpaused(err)
	}
	length := g.j.Plan.most() + agentMargin
	if before := status.Paused; before != nil {
		if left, limited := before.Left(); !limited || left > length {
			g.say("relink-agent is paused already, and stays so")
			return nil
		}
	}
	// Note the pause before it begins: the process that finishes the work of this guard must know.
	g.j.Agent.Before, g.j.Agent.Paused = status.Paused, true
	if err := g.j.save(g.dir); err != nil {
		return err
	}
	agent := g.agent
	agent.Patience = agentPatience
	if _, err := agent.Pause(ctx, length, "relink guard: "+shortened(strings.Join(g.j.Plan.Command, " "))); err != nil {
		return g.unpaused(err)
	}
	g.say("relink-agent is paused")
	return nil
}

// shownCommand is how many bytes of the command line a pause shows. An agent accepts only a few thousand bytes.
const shownCommand = 200

// shortened returns the beginning of a command line, on one line.
func shortened(command string) string {
	if len(command) > shownCommand {
		command = strings.ToValidUTF8(command[:shownCommand], "") + "..."
	}
	return printable.Line(command)
}

// unpaused is for an agent that runs but could not be paused. It may restore while the command runs.
func (g *guard) unpaused(err error) error {
	if g.j.Plan.Force {
		g.note("relink-agent is not paused: %v", err)
		return nil
	}
	return fmt.Errorf("relink-agent is not paused: %w: --force goes on all the same", err)
}

// noteUnits notes which units run.
func (g *guard) noteUnits(ctx context.Context) error {
	g.j.Units = nil
	for _, unit := range g.j.Plan.Stop {
		ran, err := g.units.runs(ctx, unit)
		if err != nil {
			return err
		}
		g.j.Units = append(g.j.Units, Unit{Name: unit, Ran: ran})
		if !ran {
			g.say("%s does not run, and stays so", unit)
		}
	}
	return nil
}

// arm makes sure that something starts the units if this guard does not.
func (g *guard) arm(ctx context.Context) error {
	environment, command, err := g.finisher()
	if err != nil {
		return err
	}
	armed, err := g.units.arm(ctx, g.j.ID, g.j.Plan.most(), environment, command)
	if err != nil {
		return fmt.Errorf("nothing would start the units again if the guard were killed: %w", err)
	}
	g.j.Armed = &armed
	return nil
}

// stop stops the units that run.
func (g *guard) stop(ctx context.Context) error {
	for _, unit := range g.j.ran() {
		start := time.Now()
		if err := g.units.stop(ctx, unit); err != nil {
			return err
		}
		g.say("%s is stopped, in %s", unit, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

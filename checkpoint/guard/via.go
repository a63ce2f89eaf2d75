package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Via is a device whose pods move to another device while the command runs.
type Via struct {
	// From is the device that the command takes away. Run fills it in if it is empty.
	From string `json:"from"`
	// To is the device that has the pods during that time.
	To string `json:"to"`
}

// ParseVia reads texts of the form DEVICE or OLD=NEW.
func ParseVia(texts []string) (all []Via, err error) {
	for _, text := range texts {
		names := strings.SplitN(text, "=", 2)
		for _, name := range names {
			if err := attachment.ValidateIfName(name); err != nil {
				return nil, fmt.Errorf("invalid --via %q: device %q %w: give DEVICE or OLD=NEW", text, name, err)
			}
		}
		if len(names) == 1 {
			all = append(all, Via{To: text})
		} else {
			all = append(all, Via{From: names[0], To: names[1]})
		}
	}
	return all, nil
}

func (v Via) String() string { return v.From + "=" + v.To }

// back is the argument of relink move that moves the pods back.
func (v Via) back() string { return v.To + "=" + v.From }

// chooseVia is a pure function: if --via does not name the device that the pods are on, chooseVia finds it.
func chooseVia(asked []Via, records []checkpoint.Record) (all []Via, err error) {
	for _, v := range asked {
		if v.From == "" {
			if v.From, err = onlyBase(records, v.To); err != nil {
				return nil, err
			}
		}
		if i := slices.IndexFunc(all, func(other Via) bool { return other.From == v.From }); i >= 0 {
			return nil, fmt.Errorf("invalid --via %s: --via %s moves the pods of %s already: name each device once", v, all[i], v.From)
		}
		all = append(all, v)
	}
	for _, v := range all {
		for _, other := range all {
			if v.To == other.From {
				return nil, fmt.Errorf("invalid --via %s: --via %s takes the pods away from %s: name a device that stays", v, other, v.To)
			}
		}
	}
	return all, nil
}

// onlyBase returns the base of all records that are not on the device. It is an error if there is none, or more than
// one.
func onlyBase(records []checkpoint.Record, device string) (string, error) {
	var bases []string
	for _, r := range records {
		parents := r.Interface.Parents
		if r.Interface.Link.Kind == netstate.KindNIC || r.Interface.ParentsInSandbox || len(parents) == 0 {
			continue
		}
		if base := parents[len(parents)-1].Name; base != device && !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	switch len(bases) {
	case 0:
		return "", fmt.Errorf("invalid --via %s: no pod is on another device: leave --via out", device)
	case 1:
		return bases[0], nil
	}
	var choices []string
	for _, base := range bases {
		choices = append(choices, fmt.Sprintf("--via %s=%s", base, device))
	}
	return "", fmt.Errorf("invalid --via %s: pods are on %s: say whose pods to move: %s", device, strings.Join(bases, " and "), strings.Join(choices, " or "))
}

// chooseVia returns the pairs of devices of the plan.
func (g *guard) chooseVia(asked []Via) ([]Via, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	records, _, err := g.Store.List()
	if err != nil {
		return nil, err
	}
	return chooseVia(asked, slices.DeleteFunc(records, isGone))
}

// moveJournal is the path of the file that says what was moved.
func (g *guard) moveJournal(v Via) string { return filepath.Join(g.dir, "moved-"+v.From+".json") }

// tryMove looks whether the pods can be moved. It changes nothing.
func (g *guard) tryMove(ctx context.Context) error {
	left, err := filepath.Glob(g.moveJournal(Via{From: "*"})) // These are from an earlier guard.
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return err
	}
	for _, v := range g.j.Plan.Via {
		report, err := move.Run(ctx, move.Options{Store: g.Store, From: v.From, To: v.To, Force: g.j.Plan.Force, DryRun: true})
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = g.accept(v, report)
		}
		if err != nil {
			return fmt.Errorf("--via %s: %w", v, err)
		}
		g.say("%s can be moved from %s to %s", count(inState(report, move.ToMove), "attachment"), v.From, v.To)
	}
	return nil
}

// accept returns an error if not everything can be moved and Force is not set.
func (g *guard) accept(v Via, report move.Report) error {
	if report.Whole() {
		return nil
	}
	wrong := slices.Clone(report.Problems)
	for _, o := range report.Attachments {
		if o.State == move.Refused || o.State == move.Failed {
			wrong = append(wrong, fmt.Sprintf("%s: %s", ofMove(o), o.Reason))
		}
	}
	if !g.j.Plan.Force || len(wrong) == 0 {
		return fmt.Errorf("not everything can be moved: %s: relink move %s --dry-run shows it, --force moves the rest", cmp.Or(some(wrong), "interrupted"), v)
	}
	g.note("not moved to %s, so cut off while %s is away: %s", v.To, v.From, some(wrong))
	return nil
}

func inState(report move.Report, state move.State) (n int) {
	for _, o := range report.Attachments {
		if o.State == state {
			n++
		}
	}
	return n
}

// ofMove names the attachment.
func ofMove(o move.Outcome) string {
	return cmp.Or(when(o.Pod.Name != "", o.Pod.String()), "sandbox "+o.Attachment.ContainerID) + " " + o.Attachment.IfName
}

// move moves the pods. A journal of the move is on disk before the first one.
func (g *guard) move(ctx context.Context) error {
	kernel.HoldProcessor()
	for _, v := range g.j.Plan.Via {
		report, err := move.Run(ctx, move.Options{
			Store: g.Store, From: v.From, To: v.To, Force: g.j.Plan.Force, Wait: g.j.Plan.Wait, Journal: g.moveJournal(v),
		})
		if err == nil {
			g.sayMoved(report, v.From, v.To)
			err = g.accept(v, report)
		}
		if err != nil {
			return fmt.Errorf("--via %s: %w", v, err)
		}
	}
	return nil
}

func (g *guard) sayMoved(report move.Report, from, to string) {
	slowest := time.Duration(0)
	for _, o := range report.Attachments {
		slowest = max(slowest, o.Switched)
	}
	for _, note := range report.Notes {
		g.say("%s", note)
	}
	g.say("moved %s from %s to %s in %s; a pod took %s at most to switch", count(inState(report, move.Moved), "attachment"), from, to,
		report.Took.Round(time.Millisecond), slowest.Round(10*time.Microsecond))
}

// moveBack moves the pods back. If the command failed, the pods stay: nobody knows in which state the device is.
func (g *guard) moveBack(ctx context.Context) error {
	kernel.HoldProcessor()
	why := when(g.j.begun(Command) && g.j.Run.failed(), "the command "+g.j.Run.text())
	wait := g.j.Plan.Wait
	if g.late() {
		wait = 0
	}
	var errs []error
	for _, v := range slices.Backward(g.j.Plan.Via) {
		path := g.moveJournal(v)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // Nothing was moved.
		}
		report, err := move.Back(ctx, move.Options{Store: g.Store, Wait: wait, Journal: path, DryRun: why != ""})
		if err != nil {
			errs = append(errs, fmt.Errorf("the pods stay on %s: %w: relink move %s moves them back", v.To, err, v.back()))
			continue
		}
		if why == "" {
			g.sayMoved(report, v.To, v.From)
		}
		g.staying(v, report, why)
	}
	return errors.Join(errs...)
}

// staying writes which pods have not moved back. why is the reason for all of them. It is empty if each has its own
// reason.
func (g *guard) staying(v Via, report move.Report, why string) {
	var reasons []string
	names := map[string][]string{}
	for _, o := range report.Attachments {
		reason := cmp.Or(why, o.Reason)
		switch {
		case o.State == move.Moved || g.gone(o.Attachment):
		case o.State == move.Failed:
			g.trouble("%s: %s", ofMove(o), o.Reason)
		default:
			if names[reason] == nil {
				reasons = append(reasons, reason)
			}
			names[reason] = append(names[reason], ofMove(o))
		}
	}
	for _, reason := range reasons {
		verb, them := "stay", "them"
		if len(names[reason]) == 1 {
			verb, them = "stays", "it"
		}
		g.trouble("%s %s on %s: %s: relink move %s moves %s back", some(names[reason]), verb, v.To, reason, v.back(), them)
		g.j.Staying++
	}
	for _, problem := range report.Problems {
		g.trouble("%s", problem)
	}
}

// failed says that the command ran and did not succeed. It is false if nobody has seen the end of the command.
func (r Ran) failed() bool {
	return r.LimitPassed || r.Interrupted || r.Known && (r.Signal > 0 || r.Status != 0)
}

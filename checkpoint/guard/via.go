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
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
)

// Via is a device whose pods move to another device while the command runs.
type Via struct {
	// Old is the device that the command takes away. Run fills it in if it is empty.
	Old string `json:"from"`
	// New is the device that has the pods during that time.
	New string `json:"to"`
}

// ParseVia reads texts of the form DEVICE or OLD=NEW.
func ParseVia(texts []string) (pairs []Via, err error) {
	for _, text := range texts {
		names := strings.SplitN(text, "=", 2)
		for _, name := range names {
			if err := attachment.ValidateIfName(name); err != nil {
				return nil, fmt.Errorf("invalid --via %q: device %q %w: give DEVICE or OLD=NEW", text, name, err)
			}
		}
		if len(names) == 1 {
			pairs = append(pairs, Via{New: text})
		} else {
			pairs = append(pairs, Via{Old: names[0], New: names[1]})
		}
	}
	return pairs, nil
}

func (v Via) String() string { return v.Old + "=" + v.New }

// moveBackCommand moves a pod back. Without a name, it would take along those that were on New before, or that another Via has moved there.
func (v Via) moveBackCommand() string { return "relink move " + v.New + "=" + v.Old + " POD" }

// chooseVia is a pure function: if --via does not name the device that the pods are on, chooseVia finds it.
func chooseVia(asked []Via, records []checkpoint.Record) (pairs []Via, err error) {
	for _, v := range asked {
		if v.Old == "" {
			if v.Old, err = onlyBase(records, v.New); err != nil {
				return nil, err
			}
		}
		pairs = append(pairs, v)
	}
	for i, v := range pairs {
		for k, rival := range pairs {
			if i < k && v.Old == rival.Old || v.New == rival.Old {
				return nil, fmt.Errorf("invalid --via %s: --via %s takes pods away from the same device: name each device once, and one that stays", v, rival)
			}
		}
	}
	return pairs, nil
}

// onlyBase returns the base of all records that are not on the device. It is an error if there is none, or more than
// one.
func onlyBase(records []checkpoint.Record, device string) (string, error) {
	var bases []string
	for _, r := range records {
		if base := checkpoint.Base(checkpoint.HostParents(r.Interface)).Name; base != "" && base != device && !slices.Contains(bases, base) {
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
	records, _, err := g.Store.List()
	if err != nil {
		return nil, err
	}
	return chooseVia(asked, slices.DeleteFunc(records, func(r checkpoint.Record) bool { return kernel.NotFound(r.Namespace) }))
}

// moveJournalPath is the path of the file that says what was moved.
func (g *guard) moveJournalPath(v Via) string {
	return filepath.Join(g.dir, "moved-"+g.journal.ID+"-"+v.Old+".json")
}

// movePods moves the pods. A journal of the move is on disk before the first one.
func (g *guard) movePods(ctx context.Context) error {
	for _, v := range g.journal.Plan.Via {
		report, err := move.Run(ctx, move.Options{
			Store: g.Store, Source: v.Old, Target: v.New, Force: g.journal.Plan.Force, Wait: g.journal.Plan.Wait, Journal: g.moveJournalPath(v),
		})
		if err == nil {
			g.logMoved(report, v.Old, v.New)
			err = ctx.Err()
		}
		if err == nil {
			wrong := append(troublesIn(report.Report), newTroubles("", report.Problems...)...)
			err = g.unlessForced(wrong, "not everything can be moved", fmt.Sprintf("relink move %s --dry-run shows it", v))
		}
		if err != nil {
			return fmt.Errorf("--via %s: %w", v, err)
		}
	}
	return nil
}

func (g *guard) logMoved(report move.UplinkReport, source, target string) {
	slowest := time.Duration(0)
	for _, o := range report.Outcomes {
		slowest = max(slowest, o.SwitchDuration)
	}
	for _, note := range report.Notes {
		g.logf("%s", note)
	}
	g.logf("moved %s from %s to %s in %s; a pod took %s at most to switch", printable.Count(report.Count(move.Moved), "attachment"), source, target,
		report.Duration.Round(time.Millisecond), slowest.Round(10*time.Microsecond))
}

// moveBack moves the pods back. If the command failed, the pods stay: nobody knows in which state the device is.
func (g *guard) moveBack(ctx context.Context) error {
	failure := ""
	if g.journal.Run.failed() {
		failure = "the command " + g.journal.Run.text()
	}
	var errs []error
	for _, v := range slices.Backward(g.journal.Plan.Via) {
		path := g.moveJournalPath(v)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // Nothing was moved.
		}
		report, err := move.Revert(ctx, move.Options{Store: g.Store, Wait: g.wait(), Journal: path, DryRun: failure != ""})
		if err != nil {
			errs = append(errs, fmt.Errorf("the pods stay on %s: %w: later type %s", v.New, err, v.moveBackCommand()))
			continue
		}
		if failure == "" {
			g.logMoved(report, v.New, v.Old)
		}
		g.reportStaying(v, report, failure)
	}
	return errors.Join(errs...)
}

// reportStaying notes which pods have not moved back. commonReason is the reason for all of them. It is empty if each has its own
// reason.
func (g *guard) reportStaying(v Via, report move.UplinkReport, commonReason string) {
	for _, o := range report.Outcomes {
		name := interfaceName(o.Outcome)
		switch {
		case o.State == move.Moved || g.isDetached(o.Attachment):
		case o.State == change.Failed:
			g.notBack(name, o.Reason)
		default:
			g.notBack(name, fmt.Sprintf("on %s, and not moved back: %s: later type %s", v.New, cmp.Or(commonReason, o.Reason), v.moveBackCommand()))
		}
	}
	g.notBack("", report.Problems...)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/adopt"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

func newCheck(open storeOpener, v *verbosity) *cobra.Command {
	var output format
	var cacheDir string
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "check " + nameUsage,
		Short: "Say whether every pod is as recorded, and has a checkpoint",
		Long: `Compare the interfaces of every pod with their checkpoints, and look for interfaces without a
checkpoint. It changes nothing. It prints one line for each interface that differs or has no
checkpoint. Many equal lines become one: --verbose shows each. A sandbox that is gone is
reported and is no failure.

` + namingHelp + `

Exit status 0: everything is as recorded; 1: something is not, and the output names it;
2: usage or environment.`,
		Example: `  relink check                 # every pod of this node
  relink check -n shop         # the pods of a namespace
  relink check --parent bond4  # what is on a device
  relink check -q              # prints nothing if all is well`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Select.Names = args
			if err := cacheIsThere(cmd, cacheDir); err != nil {
				return err
			}
			if opts.Store, err = open(); err != nil {
				return err
			}
			return check(cmd.Context(), opts, cacheDir, output, screenOf(cmd, v))
		},
	}
	addSelection(cmd, open, &opts.Select)
	addParent(cmd, open, &opts.Select)
	addCacheDir(cmd, &cacheDir)
	addOutput(cmd, &output)
	return cmd
}

// checked is the report of a check as JSON. It has the report of a restore that does nothing, and the interfaces
// without a checkpoint.
type checked struct {
	restore.Report
	Unremembered []unremembered `json:"unremembered"`
}

// unremembered is an interface of a running sandbox without a checkpoint. It has the key that relink capture would give
// it.
type unremembered struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace"`
	// Why says what keeps relink capture from writing one, if anything does.
	Why string `json:"why,omitempty"`
}

func check(ctx context.Context, opts restore.Options, cacheDir string, output format, s *screen) error {
	without, problems, err := missingFrom(ctx, opts.Store, cacheDir)
	if err != nil {
		return err
	}
	selected, without, problems, err := selectAll(opts.Store, opts.Select, without, problems)
	if err != nil {
		return err
	}
	report := restore.Report{DryRun: true, Parents: []restore.StepResult{}, Attachments: []restore.Outcome{}}
	if selected != nil {
		opts.Select = *selected
		if report, err = lookAt(ctx, opts); err != nil {
			return err
		}
	}
	for _, p := range problems {
		report.Problems = append(report.Problems, p.Text)
	}
	if output.isData() {
		if err := output.write(s.out, checked{report, unrememberedOf(without)}); err != nil {
			return err
		}
	} else {
		checkLines(report, without, opts.Store.Dir(), s)
	}
	if !report.AsRecorded() || len(without) > 0 {
		return errDiffers
	}
	return nil
}

// errInterrupted says that relink did not look at everything, so it does not know the rest.
var errInterrupted = errors.New("interrupted before everything was looked at")

// lookAt returns the state of everything that is selected. A look that was interrupted returns an error instead of a
// report. In its report, the attachments that it did not reach would seem to have failed.
func lookAt(ctx context.Context, opts restore.Options) (restore.Report, error) {
	report, err := restore.Run(ctx, opts)
	if err == nil && ctx.Err() != nil {
		err = errInterrupted
	}
	return report, err
}

// missingFrom returns what adopt.Missing does. A look that was interrupted returns errInterrupted.
func missingFrom(ctx context.Context, store *checkpoint.Store, cacheDir string) ([]adopt.Found, []adopt.Problem, error) {
	without, problems, err := adopt.Missing(ctx, adopt.Options{Store: store, CacheDir: cacheDir})
	if ctx.Err() != nil {
		return nil, nil, errInterrupted
	}
	return without, problems, err
}

// selectAll selects among the checkpoints, the interfaces without one and the problems together, because a name may
// belong to any of them. It returns three things: the selection among the checkpoints, nil for none of them; the
// selected interfaces without a checkpoint; and the selected problems.
func selectAll(store *checkpoint.Store, by selection.Selection, without []adopt.Found, problems []adopt.Problem) (
	*selection.Selection, []adopt.Found, []adopt.Problem, error,
) {
	if by.All() {
		return &by, without, problems, nil
	}
	records, unreadable, err := store.List()
	if err != nil {
		return nil, nil, nil, err
	}
	things, err := restore.Things(records, unreadable, by)
	if err != nil {
		return nil, nil, nil, err
	}
	remembered := len(things)
	for _, f := range without {
		things = append(things, f.Thing())
	}
	for _, p := range problems {
		things = append(things, p.Thing())
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, nil, nil, err
	}
	// The container IDs replace the names and the namespace. The pod of a torn checkpoint may be known only here.
	narrow := by
	narrow.Names, narrow.Namespace = nil, ""
	for i, t := range things[:remembered] {
		if chosen[i] && !slices.Contains(narrow.Names, t.ContainerID) {
			narrow.Names = append(narrow.Names, t.ContainerID)
		}
	}
	without, problems = chosenOf(without, chosen[remembered:]), chosenOf(problems, chosen[remembered+len(without):])
	if len(narrow.Names) == 0 {
		return nil, without, problems, nil
	}
	return &narrow, without, problems, nil
}

func chosenOf[T any](list []T, chosen []bool) (some []T) {
	for i, one := range list {
		if chosen[i] {
			some = append(some, one)
		}
	}
	return some
}

func unrememberedOf(found []adopt.Found) []unremembered {
	all := []unremembered{}
	for _, f := range found {
		all = append(all, unremembered{Attachment: f.Attachment, Pod: f.Pod, Namespace: f.Namespace, Why: f.Why})
	}
	return all
}

// checkLine is the line of check for one attachment, or for many that are alike.
type checkLine struct {
	pod, place, ifName string
	says               string
	// sort groups attachments whose reasons differ only in a path. It is empty if the reason itself groups them.
	sort string
}

func lineOf(o restore.Outcome, says string) checkLine {
	return checkLine{pod: o.Pod.String(), place: selection.ShortID(o.Attachment.ContainerID), ifName: o.Attachment.IfName, says: says, sort: sortOf(o)}
}

// sortOf returns the sort of outcomes whose reasons differ only in a path. It is empty if the reason itself groups
// them.
func sortOf(o restore.Outcome) string {
	switch {
	case o.State == restore.SandboxGone:
		return "the sandbox is gone"
	case isUnreadable(o):
		return "the checkpoint cannot be read"
	}
	return ""
}

// alike returns the key by which lines are folded: their sort, or else their text.
func (l checkLine) alike() string { return cmp.Or(l.sort, l.says) }

func checkLines(report restore.Report, without []adopt.Found, dir string, s *screen) {
	var gone, notCaptured, differ, unknown []checkLine
	for _, o := range report.Attachments {
		switch {
		case o.State == restore.SandboxGone:
			gone = append(gone, lineOf(o, o.Why()))
		case o.Differs():
			differ = append(differ, lineOf(o, o.Why()))
		}
		for _, what := range o.Interface.NotCaptured {
			notCaptured = append(notCaptured, lineOf(o, "not captured, would not be restored: "+what))
		}
	}
	for _, f := range without {
		unknown = append(unknown, checkLine{
			pod: f.Pod.String(), place: f.Namespace.Path, ifName: f.Live.Link.Name,
			says: "it has no checkpoint: " + cmp.Or(f.Why, "relink capture writes one"),
		})
	}
	if !s.quiet {
		for _, note := range report.Notes {
			s.say("%s", note)
		}
		writeLines(gone, s)
		writeLines(notCaptured, s)
	}
	writeLines(unknown, s)
	for _, p := range report.Problems {
		s.say("%s", p)
	}
	writeLines(differ, s)
	summary := fmt.Sprintf("%s as recorded, %d not", count(len(report.Attachments)-len(differ)-len(gone), "attachment"), len(differ))
	if len(gone) > 0 {
		summary += fmt.Sprintf(", %s gone", count(len(gone), "sandbox"))
	}
	if n := len(report.Problems) + len(without); n > 0 {
		summary += ", " + count(n, "other problem")
	}
	if len(report.Attachments) == 0 {
		summary += " (in " + dir + ")"
	}
	s.inform(summary)
}

// writeLines writes one line for each attachment, or one line for many that say the same.
func writeLines(lines []checkLine, s *screen) {
	for _, alike := range folded(lines, s, checkLine.alike) {
		l := alike[0]
		switch {
		case len(alike) == 1:
			s.say("%s %s %s: %s", l.pod, l.place, l.ifName, l.says)
		case l.sort != "":
			s.say("%s (%s): %s. One of them: %s", count(len(alike), "interface"), someOf(alike), l.sort, l.says)
		default:
			s.say("%s (%s): %s", count(len(alike), "interface"), someOf(alike), l.says)
		}
	}
}

// someOf names the first few of them.
func someOf(lines []checkLine) string {
	const named = 3
	var all []string
	for _, l := range lines {
		name := l.pod
		if name == "-" {
			name = l.place
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) <= named {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), len(all)-named)
}

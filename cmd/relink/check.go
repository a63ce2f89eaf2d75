package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/adopt"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

func newCheck(open storeOpener) *cobra.Command {
	var output format
	var cacheDir string
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "check " + nameUsage,
		Short: "Say whether the kernel agrees with every checkpoint, and every sandbox has one",
		Long: `Say whether the kernel agrees with every checkpoint, and whether every running
sandbox with an interface on a device of the host has one. Exit status 0 if so, 1
with a line for each that differs or has none.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Select.Names = args
			if err := cacheIsThere(cmd, cacheDir); err != nil {
				return err
			}
			if opts.Store, err = open(); err != nil {
				return err
			}
			return check(cmd.Context(), opts, cacheDir, output, cmd.OutOrStdout())
		},
	}
	addSelection(cmd, &opts.Select)
	addParent(cmd, &opts.Select)
	addCacheDir(cmd, &cacheDir)
	addOutput(cmd, &output)
	return cmd
}

// checked is the report of a check as JSON: that of a restore that does nothing, and
// the interfaces that have no checkpoint.
type checked struct {
	restore.Report
	Unremembered []unremembered `json:"unremembered"`
}

// unremembered is an interface of a running sandbox without a checkpoint. Its key is
// the one that relink capture would give it.
type unremembered struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace"`
	// Why says what keeps relink capture from writing one, if anything does.
	Why string `json:"why,omitempty"`
}

func check(ctx context.Context, opts restore.Options, cacheDir string, output format, stdout io.Writer) error {
	without, problems, err := adopt.Missing(adopt.Options{Store: opts.Store, CacheDir: cacheDir})
	if err != nil {
		return err
	}
	selected, without, err := selectAll(opts.Store, opts.Select, without)
	if err != nil {
		return err
	}
	var report restore.Report
	if selected != nil {
		opts.Select = *selected
		if report, err = restore.Run(ctx, opts); err != nil {
			return err
		}
	}
	report.Problems = append(report.Problems, problems...)
	if output == formatJSON {
		if err := writeJSON(stdout, checked{report, unrememberedOf(without)}); err != nil {
			return err
		}
	} else {
		checkLines(report, without, opts.Store.Dir(), stdout)
	}
	if !report.AsRecorded() || len(without) > 0 {
		return errDiffers
	}
	return nil
}

// selectAll selects among the checkpoints and the interfaces without one together: what is named may have a
// checkpoint or not. It returns what to select among the checkpoints, nil for none of them, and the interfaces
// without one that are selected.
func selectAll(store *checkpoint.Store, by selection.Selection, without []adopt.Found) (*selection.Selection, []adopt.Found, error) {
	if by.All() {
		return &by, without, nil
	}
	records, unreadable, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	things := checkpoint.Things(records, unreadable)
	remembered := len(things)
	for _, f := range without {
		things = append(things, f.Thing())
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, nil, err
	}
	narrow := by
	narrow.Names = nil
	for i, t := range things[:remembered] {
		if chosen[i] && !slices.Contains(narrow.Names, t.ContainerID) {
			narrow.Names = append(narrow.Names, t.ContainerID)
		}
	}
	var some []adopt.Found
	for i, f := range without {
		if chosen[remembered+i] {
			some = append(some, f)
		}
	}
	if len(narrow.Names) == 0 {
		return nil, some, nil
	}
	return &narrow, some, nil
}

func unrememberedOf(found []adopt.Found) []unremembered {
	all := []unremembered{}
	for _, f := range found {
		all = append(all, unremembered{Attachment: f.Attachment, Pod: f.Pod, Namespace: f.Namespace, Why: f.Why})
	}
	return all
}

func checkLines(report restore.Report, without []adopt.Found, dir string, w io.Writer) {
	differ := 0
	for _, o := range report.Attachments {
		if !o.AsItShould() {
			differ++
			say(w, "%s %s %s: %s", o.Pod, shortID(o.Attachment.ContainerID), o.Attachment.IfName, o.Why())
		}
	}
	for _, p := range report.Problems {
		say(w, "%s", p)
	}
	for _, o := range report.Attachments {
		for _, what := range o.Interface.NotCaptured {
			say(w, "%s %s %s: not captured, would not be restored: %s", o.Pod, shortID(o.Attachment.ContainerID), o.Attachment.IfName, what)
		}
	}
	for _, f := range without {
		say(w, "%s %s %s: it has no checkpoint: %s", f.Pod, f.Namespace.Path, f.Live.Link.Name, cmp.Or(f.Why, "relink capture writes one"))
	}
	line := fmt.Sprintf("%d attachments as recorded, %d not", len(report.Attachments)-differ, differ)
	if n := len(report.Problems) + len(without); n > 0 {
		line += fmt.Sprintf(", %d other problems", n)
	}
	if len(report.Attachments) == 0 {
		line += " (in " + dir + ")"
	}
	say(w, "%s", line)
}

package main

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

func newList(open storeOpener, v *verbosity) *cobra.Command {
	var output format
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "list " + nameUsage,
		Short: "List the attachments that have a checkpoint, and the state of each",
		Long: `List the attachments that have a checkpoint, and the state of each. An attachment is one
interface of a pod on one network. AGE is the time since the checkpoint was written. A narrow
terminal shows fewer columns; -o wide shows all. With -o json or yaml, each is its checkpoint
with "state" and "why" beside it.

` + namingHelp + `

Exit status 0: all checkpoints could be read; 1: one could not, and a message names it;
2: usage or environment.`,
		Example: `  relink list                     # all attachments
  relink list -n shop -o wide     # those of a namespace, with all columns
  relink list --parent bond4      # those that a restart of bond4 would cut off
  relink list -o name | xargs -n1 relink show`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Select.Names = args
			if opts.Store, err = open(); err != nil {
				return err
			}
			report, err := inspectAttachments(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return list(opts.Store, report, opts.Select, output, screenOf(cmd, v))
		},
	}
	addSelection(cmd, open, &opts.Select)
	addParent(cmd, open, &opts.Select)
	addOutput(cmd, &output, formatWide, formatName)
	return cmd
}

// listedAttachment is an attachment as list prints it for programs.
type listedAttachment struct {
	checkpoint.Record
	State  restore.State `json:"state"`
	Reason string        `json:"why,omitempty"`
}

func list(store *checkpoint.Store, report restore.Report, filter selection.Selection, output format, s *screen) error {
	records, unreadable, err := restore.Select(store, filter)
	if err != nil {
		return err
	}
	recorded := map[attachment.Key]checkpoint.Record{}
	for _, r := range records {
		recorded[r.Attachment] = r
	}
	var attachments []listedAttachment
	for _, o := range report.Attachments {
		// An attachment that was forgotten since the look is no longer listed.
		if r, exists := recorded[o.Attachment]; exists {
			attachments = append(attachments, listedAttachment{Record: r, State: stateOf(o), Reason: o.FullReason()})
		}
	}
	switch {
	case output.isData():
		err = output.write(s.out, orEmpty(attachments))
	case output.name == formatName:
		writeNames(attachments, s)
	case len(attachments) == 0 && len(unreadable) == 0:
		s.warnf("nothing is remembered in %s", store.Dir())
	default:
		listTable(attachments, output.wide(), s)
	}
	if err != nil {
		return err
	}
	return printUnreadable(s, unreadable)
}

func listTable(attachments []listedAttachment, wide bool, s *screen) {
	parents := "PARENT"
	if wide {
		parents = "PARENTS"
	}
	t := newTable(wide, column{name: "POD"}, column{name: "SANDBOX", wide: true}, column{name: "INTERFACE", spare: 4},
		column{name: "NETWORK", spare: 3}, column{name: parents},
		column{name: "MAC", wide: true}, column{name: "ADDRESS", spare: 1}, column{name: stateColumn}, column{name: "AGE", spare: 2},
		column{name: "WRITER", wide: true})
	for _, l := range attachments {
		i := unexpired(l.Interface)
		addresses, below := someAddresses(i.Addresses), firstParent(i.Parents)
		if wide {
			addresses, below = addressList(i.Addresses), parentNames(i.Parents)
		}
		t.row(podCell(l.Pod, l.Attachment.ContainerID), l.Attachment.ContainerID, l.Attachment.IfName, l.Attachment.Network, below,
			i.Link.MAC, addresses, string(l.State), age(l.CapturedAt), l.Writer)
	}
	t.write(s)
}

// writeNames writes one line for each sandbox: the name that selects it on a command line.
func writeNames(attachments []listedAttachment, s *screen) {
	printed := map[string]bool{}
	for _, l := range attachments {
		name := podCell(l.Pod, l.Attachment.ContainerID)
		if !printed[name] {
			printed[name] = true
			s.printf("%s", name)
		}
	}
}

// podCell is the pod, or the sandbox's container ID if no pod is known.
func podCell(pod attachment.Pod, containerID string) string {
	if pod.Name == "" {
		return selection.ShortID(containerID)
	}
	return pod.String()
}

// age is the time since instant, as kubectl shows it.
func age(instant time.Time) string {
	if instant.IsZero() {
		return ""
	}
	return humanDuration(time.Since(instant))
}

// humanDuration is a time that has passed, as kubectl shows it. A clock that was set back makes none negative.
func humanDuration(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// printUnreadable names the checkpoints that could not be read. Its error decides the exit status.
func printUnreadable(s *screen, unreadable []checkpoint.Unreadable) error {
	for _, u := range unreadable {
		printError(s.err, u.Err)
	}
	if len(unreadable) > 0 {
		return errDiffers
	}
	return nil
}

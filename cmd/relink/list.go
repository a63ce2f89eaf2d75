package main

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

func newList() *cobra.Command {
	opts := restore.Options{DryRun: true}
	cmd := newVerb("list", func(cmd *cobra.Command, _ []string) error {
		return presentAttachments(cmd, opts, func(attachments []listedAttachment, complete bool, s *cli.Screen) {
			switch {
			case s.Format == cli.FormatName:
				s.PrintLines(cli.Unique(cli.Texts(attachments, func(l listedAttachment) string { return podCell(l.Pod, l.Attachment.ContainerID) })))
			case len(attachments) == 0 && complete:
				s.Warnf("nothing is remembered in %s", opts.Store.Dir())
			default:
				listTable(attachments, s)
			}
		})
	})
	addSelection(cmd, &opts.Select, &opts.Store)
	addParent(cmd, &opts.Select)
	cli.AddOutput(cmd, cli.FormatWide, cli.FormatName)
	return cmd
}

// listedAttachment is an attachment and how it is.
type listedAttachment struct {
	checkpoint.Record
	State  change.State `json:"state"`
	Words  string       `json:"-"`
	Reason string       `json:"why,omitempty"`
	// Live is the present interface, if it exists, and differs from the record.
	Live *netstate.Interface `json:"live,omitempty"`
}

// presentAttachments looks at what is selected, writes it, and names the checkpoints that could not be read.
func presentAttachments(cmd *cobra.Command, opts restore.Options, write func(attachments []listedAttachment, complete bool, s *cli.Screen)) error {
	report, err := inspectAttachments(cmd.Context(), opts)
	if err != nil {
		return err
	}
	attachments := []listedAttachment{}
	var unreadable []string
	for _, o := range report.Outcomes {
		if o.Record == nil {
			unreadable = append(unreadable, o.Reason)
			continue
		}
		listed := listedAttachment{Record: *o.Record, State: status.StateOf(o), Words: status.Words(o), Reason: o.FullReason()}
		if o.Differs() {
			listed.Live = o.Live
		}
		attachments = append(attachments, listed)
	}
	s, complete := screenOf(cmd), len(unreadable) == 0
	err = s.Present(attachments, complete, func() { write(attachments, complete, s) })
	for _, reason := range unreadable {
		s.Warnf("%s", reason)
	}
	return err
}

func listTable(attachments []listedAttachment, s *cli.Screen) {
	parents := "PARENT"
	if s.Wide() {
		parents = "PARENTS"
	}
	t := cli.NewTable("POD | SANDBOX:wide | INTERFACE:4 | NETWORK:3 | " + parents + " | MAC:wide | ADDRESS:1 | STATE | AGE:2 | WRITER:wide")
	for _, l := range attachments {
		i := unexpired(l.Interface)
		addresses, below := someAddresses(i.Addresses), firstParent(i.Parents)
		if s.Wide() {
			addresses, below = addressList(i.Addresses), parentNames(i.Parents)
		}
		t.Row(podCell(l.Pod, l.Attachment.ContainerID), l.Attachment.ContainerID, l.Attachment.IfName, l.Attachment.Network, below,
			i.Link.MAC, addresses, l.Words, age(l.CapturedAt), l.Writer)
	}
	t.Write(s)
}

// podCell is the pod, or the sandbox's container ID if no pod is known.
func podCell(pod attachment.Pod, containerID string) string {
	return pod.Or(selection.ShortID(containerID))
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

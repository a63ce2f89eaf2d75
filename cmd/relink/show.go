package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

func newShow() *cobra.Command {
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "show [NAMESPACE/]POD|ID...",
		Short: "Show what the checkpoints of a pod have, and what differs now",
		Long: `Show everything that the checkpoints of a pod have. Where an interface is not as recorded, it says
what differs, and what was added.

` + namingHelp + `

Exit status 0: all checkpoints could be read; 1: one could not, and a message names it;
2: usage or environment.`,
		Example: `  relink show shop/web-0
  relink show 4f1c2ab0d6e91
  relink show web-0 -n shop -o yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return presentAttachments(cmd, opts, func(attachments []listedAttachment, _ bool, s *screen) {
				for _, entry := range attachments {
					describeAttachment(entry, s)
				}
			})
		},
	}
	addSelection(cmd, &opts.Select, &opts.Store)
	cmd.Args = takes(1, -1)
	addOutput(cmd)
	return cmd
}

// describeAttachment writes a record in the layout of kubectl describe.
func describeAttachment(entry listedAttachment, s *screen) {
	r := entry.Record
	var d description
	d.row("Pod:", r.Pod.String())
	d.row("Sandbox:", r.Attachment.ContainerID)
	d.row("Network:", r.Attachment.Network)
	d.rowf("Namespace:", "%s (inode %d, cookie %d)", r.Namespace.Path, r.Namespace.Inode, r.Namespace.Cookie)
	d.rowf("Captured:", "%s by %s", r.CapturedAt.Local().Format("2006-01-02 15:04:05 MST"), r.Writer)
	if a := r.HostAccess; a != nil {
		d.rowf("Host access:", "%s in the pod, %s in the host, settings: %s", a.Name, a.HostName, settingsOf(a.Options))
	}
	d.row("State:", entry.Words)
	d.row("Why:", entry.Reason)
	recorded := unexpired(r.Interface)
	if entry.Live != nil {
		d.list("Added:", additions(recorded, *entry.Live))
	}
	d.describeInterface(recorded)
	d.write(s)
}

// unexpired returns the interface as the pod can have it now: "as recorded" does not mean addresses that have expired.
func unexpired(i netstate.Interface) netstate.Interface {
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	return i.Unexpired(uptime)
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

func newShow() *cobra.Command {
	opts := restore.Options{DryRun: true}
	cmd := newVerb("show", func(cmd *cobra.Command, _ []string) error {
		return presentAttachments(cmd, opts, func(attachments []listedAttachment, _ bool, s *cli.Screen) {
			for _, entry := range attachments {
				describeAttachment(entry, s)
			}
		})
	})
	addSelection(cmd, &opts.Select, &opts.Store)
	cmd.Args = cli.Takes(1, -1)
	cli.AddOutput(cmd)
	return cmd
}

// describeAttachment writes a record in the layout of kubectl describe.
func describeAttachment(entry listedAttachment, s *cli.Screen) {
	r := entry.Record
	var d cli.Description
	d.Add("Pod:", r.Pod.String(), "Sandbox:", r.Attachment.ContainerID, "Network:", r.Attachment.Network)
	d.Addf("Namespace:", "%s (inode %d, cookie %d)", r.Namespace.Path, r.Namespace.Inode, r.Namespace.Cookie)
	d.Addf("Captured:", "%s by %s", r.CapturedAt.Local().Format("2006-01-02 15:04:05 MST"), r.Writer)
	if a := r.HostAccess; a != nil {
		d.Addf("Host access:", "%s in the pod, %s in the host, settings: %s", a.Name, a.HostName, settingsOf(a.Options))
	}
	d.Add("State:", entry.Words, "Why:", entry.Reason)
	recorded := unexpired(r.Interface)
	if entry.Live != nil {
		d.AddList("Added:", additions(recorded, *entry.Live))
	}
	describeInterface(recorded, &d)
	d.Write(s)
}

// unexpired returns the interface as the pod can have it now: "as recorded" does not mean addresses that have expired.
func unexpired(i netstate.Interface) netstate.Interface {
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	return i.Unexpired(uptime)
}

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
)

func newList(open storeOpener) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the attachments that are remembered",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := open()
			if err != nil {
				return err
			}
			return list(store, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func list(store *checkpoint.Store, output format, stdout, stderr io.Writer) error {
	records, unreadable, err := store.List()
	if err != nil {
		return err
	}
	if output == formatJSON {
		err = writeJSON(stdout, orEmpty(records))
	} else {
		err = listTable(records, stdout)
	}
	if err != nil {
		return err
	}
	return sayUnreadable(stderr, unreadable)
}

func listTable(records []checkpoint.Record, w io.Writer) error {
	t := newTable(w, "POD", "SANDBOX", "INTERFACE", "NETWORK", "PARENTS", "MAC", "ADDRESSES")
	for _, r := range records {
		t.row(r.Pod.String(), shortID(r.Attachment.ContainerID), r.Attachment.IfName, r.Attachment.Network,
			parentNames(r.Interface.Parents), r.Interface.Link.MAC, addressList(r.Interface.Addresses))
	}
	return t.flush()
}

// sayUnreadable names the checkpoints that could not be read, and makes that an
// exit code.
func sayUnreadable(w io.Writer, unreadable []checkpoint.Unreadable) error {
	for _, u := range unreadable {
		sayError(w, u.Err)
	}
	if len(unreadable) > 0 {
		return errDiffers
	}
	return nil
}

// orEmpty makes no list an empty one, for JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

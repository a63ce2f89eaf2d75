package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// addSelection lets a user name pods and sandboxes, in the same way for every verb. It opens the store before the verb runs.
func addSelection(cmd *cobra.Command, s *selection.Selection, store **checkpoint.Store) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		s.Names = args
		if *store, err = openStore(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
	addNamespaces(cmd, &s.Namespace)
	cmd.Flags().StringVar(&s.Network, "network", "", "only attachments of this `network`")
	cmd.Args = cli.Takes(0, -1)
	cmd.ValidArgsFunction = completeRecords(namesOf)
	cli.Must(cmd.RegisterFlagCompletionFunc("namespace", completeRecords(namespaceOf)))
	cli.Must(cmd.RegisterFlagCompletionFunc("network", completeRecords(networkOf)))
}

// addParent lets a user select by a device below the attachments.
func addParent(cmd *cobra.Command, s *selection.Selection) {
	cmd.Flags().StringVar(&s.Parent, "parent", "", "only attachments on this `device`: a NIC, a bond or a VLAN device")
	completeParent(cmd)
}

func completeParent(cmd *cobra.Command) {
	cli.Must(cmd.RegisterFlagCompletionFunc("parent", completeRecords(parentsOf)))
}

// addNamespaces adds the flags that kubectl has.
func addNamespaces(cmd *cobra.Command, namespace *string) {
	flags := cmd.Flags()
	flags.StringVarP(namespace, "namespace", "n", "", "only pods of this `namespace`")
	flags.BoolP("all-namespaces", "A", false, "pods of all namespaces, as without this flag")
}

func namesOf(r checkpoint.Record) []string {
	if r.Pod.Name == "" {
		return []string{r.Attachment.ContainerID}
	}
	return []string{r.Pod.String()}
}

func namespaceOf(r checkpoint.Record) []string { return []string{r.Pod.Namespace} }
func networkOf(r checkpoint.Record) []string   { return []string{r.Attachment.Network} }
func parentsOf(r checkpoint.Record) []string   { return netstate.ChainNames(r.Interface.Parents) }

// completeRecords returns a completion with values from the checkpoints.
func completeRecords(valuesOf func(checkpoint.Record) []string) cobra.CompletionFunc {
	return cli.Completion(func(cmd *cobra.Command) []checkpoint.Record {
		store, err := openStore(cmd)
		if err != nil {
			return nil
		}
		records, _, _ := store.List() // What cannot be read is not offered.
		return records
	}, valuesOf)
}

// printLockWait returns a function that prints which lock the command waits for. It writes each line at once, not through the
// printable.Writer, because several goroutines can wait.
func printLockWait(w io.Writer) flock.OnWait {
	return func(line string) { cli.PrintLine(cli.Raw(w), "relink: %s", line) }
}

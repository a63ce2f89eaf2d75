package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/selection"
)

// nameUsage is how a verb's line of usage shows what can be named.
const nameUsage = "[[NAMESPACE/]POD|ID]..."

// namingHelp is what the help of every verb that selects says.
const namingHelp = `POD is the name of a pod. ID is a container ID, or the beginning of one as "relink list -o wide"
shows it. A name that matches nothing, or more than one pod, is an error.`

// addSelection lets the verb name pods and sandboxes, all in the same way. The names are in args.
func addSelection(cmd *cobra.Command, s *selection.Selection) {
	addNamespaces(cmd, &s.Namespace)
	cmd.Flags().StringVar(&s.Network, "network", "", "only attachments of this `network`")
	cmd.Args = cobra.ArbitraryArgs
}

// addParent lets the verb select by a device below the attachments.
func addParent(cmd *cobra.Command, s *selection.Selection) {
	cmd.Flags().StringVar(&s.Parent, "parent", "", "only attachments on this `device`: a NIC, a bond or a VLAN device")
}

// addNamespaces adds the flags that kubectl has.
func addNamespaces(cmd *cobra.Command, namespace *string) {
	flags := cmd.Flags()
	flags.StringVarP(namespace, "namespace", "n", "", "only pods of this `namespace`")
	flags.BoolP("all-namespaces", "A", false, "pods of all namespaces, as without this flag")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

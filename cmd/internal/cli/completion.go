package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Completion returns a completion with the values of all elements of a list, each of them once.
func Completion[T any](list func(*cobra.Command) []T, valuesOf func(T) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var values []string
		for _, element := range list(cmd) {
			values = append(values, valuesOf(element)...)
		}
		values = slices.DeleteFunc(values, func(v string) bool { return v == "" || !strings.HasPrefix(v, prefix) })
		slices.Sort(values)
		return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteArgs returns a completion for several arguments, where each argument has a completion of its own.
func CompleteArgs(completers ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(completers) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completers[len(args)](cmd, args, prefix)
	}
}

package main

import "github.com/spf13/cobra"

func newStatus(_ storeOpener, _ *verbosity) *cobra.Command { return &cobra.Command{Use: "status"} }

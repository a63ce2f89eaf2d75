package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool/fence"
)

// colours are the colours of the words in a STATE column. Green is right, yellow needs a look, red went wrong.
var colours = map[string]cli.Paint{
	string(fence.ToFence): cli.Yellow, string(fence.Fenced): cli.Green, string(fence.FencedBefore): cli.Green, string(fence.Skipped): cli.Red, string(fence.Failed): cli.Red,
	string(asRecorded): cli.Green, string(differs): cli.Red, string(noAnswer): cli.Red, string(noAgent): cli.Faint,
}

// screenOf returns the screen of the command.
func screenOf(cmd *cobra.Command) *cli.Screen {
	s := cli.NewScreen(cmd)
	s.StateColour = func(state string) cli.Paint { return colours[state] }
	return s
}

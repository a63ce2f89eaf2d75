package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

// colours are the colours of the words in a STATE column. Green is right, yellow needs a look, red went wrong.
var colours = map[cli.Paint][]change.State{
	cli.Green: {
		restore.AsRecorded, restore.Restored, restore.Repaired, capture.Captured, capture.Refreshed, change.Kept, move.Moved, "up", change.State(lease.Held),
	},
	cli.Yellow: {
		restore.ToRestore, restore.ToRepair, restore.Waiting, status.NoLink, move.ToMove, change.NotTried, "down", change.State(lease.Quarantined),
	},
	cli.Red:   {change.Failed, restore.Blocked, change.Refused, "gone"},
	cli.Faint: {restore.SandboxGone},
}

// screenOf returns the screen of the command.
func screenOf(cmd *cobra.Command) *cli.Screen {
	s := cli.NewScreen(cmd)
	s.StateColour = stateColour
	return s
}

// stateColour is the colour of the state. What waits names its device behind it.
func stateColour(state string) cli.Paint {
	state, _, _ = strings.Cut(state, " for ")
	for colour, states := range colours {
		if slices.Contains(states, change.State(state)) {
			return colour
		}
	}
	return ""
}

// stateCount says how many attachments are in a state.
func stateCount[S ~string](n int, state S) string {
	if string(state) == string(restore.SandboxGone) {
		return printable.Count(n, "sandbox") + " gone"
	}
	return fmt.Sprintf("%d %s", n, state)
}

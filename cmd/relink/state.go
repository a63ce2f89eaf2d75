package main

import (
	"fmt"
	"strings"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool/fence"
	"github.com/relink-cni/relink/pkg/printable"
)

// colours are the colours of the words in a STATE column. Green is right, yellow needs a look, red went wrong.
var colours = map[string]paint{
	string(restore.AsRecorded): green, string(restore.Restored): green, string(restore.Repaired): green,
	string(restore.ToRestore): yellow, string(restore.ToRepair): yellow, string(restore.Waiting): yellow, string(status.NoLink): yellow,
	string(restore.SandboxGone): faint, string(change.Failed): red, string(restore.Blocked): red,
	string(capture.Captured): green, string(capture.Refreshed): green, string(change.Kept): green, string(change.Refused): red,
	string(move.Moved): green, string(move.ToMove): yellow, string(change.NotTried): yellow,
	"gone": red, "down": yellow, "up": green,
	string(fence.ToFence): yellow, string(fence.Fenced): green, string(fence.FencedBefore): green, string(fence.Skipped): red,
	string(lease.Held): green, string(lease.Quarantined): yellow,
}

// stateColour is the colour of the state. What waits names its device behind it.
func stateColour(state string) paint {
	state, _, _ = strings.Cut(state, " for ")
	return colours[state]
}

// stateCount says how many attachments are in a state.
func stateCount[S ~string](n int, state S) string {
	if string(state) == string(restore.SandboxGone) {
		return printable.Count(n, "sandbox") + " gone"
	}
	return fmt.Sprintf("%d %s", n, state)
}

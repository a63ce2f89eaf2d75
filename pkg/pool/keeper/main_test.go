package keeper

import (
	"flag"
	"os"
	"testing"
)

// drawn is how often a test draws.
const drawn = "30"

// TestMain bounds how much is drawn: each draw writes to the disk some hundred times. A flag on the command line goes first.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", drawn); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

package keeper

import (
	"flag"
	"os"
	"testing"
)

// TestMain bounds how much is drawn: each draw writes to the disk some hundred times. A flag on the command line goes first.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

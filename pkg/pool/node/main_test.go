package node

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// checkUntil is rapid.Check, again until all of these have happened: the draws of one check lack one of them about once in a thousand
// runs. What ten checks lack does not happen any more.
func checkUntil(t *testing.T, draw func(*rapid.T), seen map[string]int, all ...string) {
	t.Helper()
	for range 10 {
		rapid.Check(t, draw)
		all = slices.DeleteFunc(all, func(what string) bool { return seen[what] > 0 })
		if len(all) == 0 {
			return
		}
	}
	t.Errorf("nowhere happens: %s", strings.Join(all, ", "))
}

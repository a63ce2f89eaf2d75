package guard

import (
	"strings"
	"testing"
)

// The checkpoints vanish while the command runs. So nothing can be brought back, and guard says that something is missing.
func TestVanishedCheckpointsAreAFailure(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	out := h.guard(t, 123, `rm -r "$RELINK_CHECKPOINT_DIR/c1"; `+reload)
	contains(t, out, "NOT BACK: there are 0 checkpoints, and there were 1: pods have ended, or somebody has deleted checkpoints")
	if strings.Contains(out, "everything is back") {
		t.Errorf("it says that everything is back:\n%s", out)
	}
}

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The next gc finishes a killed one. Neither of them touches the checkpoints of a living sandbox, and no temporary
// file stays.
func TestGCNowKilledAtEveryStep(t *testing.T) {
	n := newNode(t)
	must(t, n.newPod(t, "own", false).add())
	own := n.records(t)
	cache := t.TempDir()
	must(t, os.Mkdir(filepath.Join(cache, "results"), 0o755))
	gc := "gc --checkpoints --now --yes --cni-cache " + cache
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			for i := range 3 {
				r := own["own eth0"]
				r.Attachment.ContainerID, r.Namespace.BootID = fmt.Sprintf("c%d", i), "an earlier boot"
				must(t, n.store.Save(r))
			}
			torn := filepath.Join(n.store.Dir(), "c2", "eth0.json")
			info, err := os.Stat(torn)
			must(t, err)
			must(t, os.Truncate(torn, info.Size()/2))
			return n.command(gc)
		},
		after: func(t *testing.T) {
			n.says(t, 0, gc)
			sameRecords(t, own, n.records(t))
			n.nothingTemporary(t)
			n.says(t, 0, "check", "1 attachment as recorded, 0 not")
		},
	}.killAtEveryStep(t)
}

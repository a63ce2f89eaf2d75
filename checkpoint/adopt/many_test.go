package adopt_test

import (
	"fmt"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// A pod that makes very many devices of its own does not hold up what is done for all.
func TestVeryManyMacvlansOfThePodsOwn(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", netns)
	n.Says(t, 0, "capture", "1 captured")
	const count = 1000
	fresh.Run(t, netns, fmt.Sprintf(`for i in $(seq %d); do echo "link add link eth0 name own$i type macvlan mode bridge"; done | ip -batch -`, count))
	// Were each compared with a look at each other, this would take half a minute.
	n.Says(t, 0, "capture", fmt.Sprintf("1 kept, %d left alone\n", count))
}

package reclaim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// A namespace that nothing leads to may be there all the same.
func TestJudgeOfWhatCannotBeSeen(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	known := attachment.Namespace{BootID: "boot-1", Device: 4, Inode: 7, Cookie: 9}
	for name, test := range map[string]struct {
		change func(*Node, *lease.Holder)
		want   Judgement
	}{
		"all is seen": {func(*Node, *lease.Holder) {}, Judgement{Gone, []string{
			"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it",
		}}},
		"an open file keeps it": {func(n *Node, _ *lease.Holder) { n.kept[7] = "an open file of process 12" }, Judgement{Unknown, []string{
			"an open file of process 12 keeps its network namespace, or one that has its inode now (4:7)",
		}}},
		"not all processes are seen": {func(n *Node, _ *lease.Holder) { n.partial = "this is a container" }, Judgement{Unknown, []string{
			"no mount and no process that is seen here has its network namespace (inode 4:7), but this is a container",
		}}},
		"a checkpoint knows a namespace that is there": {func(n *Node, h *lease.Holder) {
			n.namespaces["c1"], h.Namespace = known, attachment.Namespace{BootID: "boot-1"}
			n.live[inode{4, 7}] = live{"it", 9}
		}, Judgement{Alive, []string{"it is in it"}}},
		"a checkpoint knows a namespace that is gone": {func(n *Node, h *lease.Holder) {
			n.namespaces["c1"], h.Namespace = known, attachment.Namespace{BootID: "boot-1"}
		}, Judgement{Gone, []string{"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it"}}},
	} {
		n := &Node{
			bootID: "boot-1", live: map[inode]live{}, kept: map[uint64]string{}, namespaces: map[string]attachment.Namespace{},
			cache: cache{dir: "/cache"},
		}
		h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: known, Since: now.Add(-time.Hour)}
		test.change(n, &h)
		if diff := cmp.Diff(test.want, n.Judge(address, h, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

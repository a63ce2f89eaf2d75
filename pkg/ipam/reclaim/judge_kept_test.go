package reclaim

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// A namespace that nothing leads to may still exist.
func TestJudgeOfWhatCannotBeSeen(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	known := attachment.Namespace{BootID: "boot-1", Device: 4, Inode: 7, Cookie: 9}
	for name, test := range map[string]struct {
		change func(*Node, *lease.Holder)
		want   sandbox.Judgement
	}{
		"all is seen": {func(*Node, *lease.Holder) {}, sandbox.Judgement{Verdict: sandbox.VerdictGone, Evidence: []string{
			"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it",
		}}},
		"an open file keeps it": {func(n *Node, _ *lease.Holder) { n.keepers[7] = "an open file of process 12" }, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{
			"an open file of process 12 keeps its network namespace, or one that has its inode now (4:7)",
		}}},
		"not all processes are seen": {func(n *Node, _ *lease.Holder) { n.incomplete = "this is a container" }, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{
			"no mount and no process that is seen here has its network namespace (inode 4:7), but this is a container",
		}}},
		"a checkpoint knows a namespace that is there": {func(n *Node, h *lease.Holder) {
			n.namespaces["c1"], h.Namespace = known, attachment.Namespace{BootID: "boot-1"}
			n.live[inode{4, 7}] = liveNamespace{"it", 9}
		}, sandbox.Judgement{Verdict: sandbox.VerdictAlive, Evidence: []string{"it is in it"}}},
		"a checkpoint knows a namespace that is gone": {func(n *Node, h *lease.Holder) {
			n.namespaces["c1"], h.Namespace = known, attachment.Namespace{BootID: "boot-1"}
		}, sandbox.Judgement{Verdict: sandbox.VerdictGone, Evidence: []string{"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it"}}},
		"a checkpoint of an earlier boot says nothing": {func(n *Node, h *lease.Holder) {
			n.namespaces["c1"] = attachment.Namespace{BootID: "boot-0", Device: 4, Inode: 7, Cookie: 9}
			h.Namespace, n.holders = attachment.Namespace{BootID: "boot-1"}, map[netip.Addr][]inode{address: {{4, 8}}}
			n.live[inode{4, 8}] = liveNamespace{"it", 9}
		}, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{"its network namespace was not recorded", "it has the address"}}},
		"its checkpoint cannot be read": {func(n *Node, h *lease.Holder) {
			n.unreadable, h.Namespace = map[string]string{"c1": "torn"}, attachment.Namespace{BootID: "boot-1"}
		}, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{"its network namespace was not recorded", "torn"}}},
		"another's checkpoint cannot be read": {func(n *Node, h *lease.Holder) {
			n.unreadable, h.Namespace = map[string]string{"c2": "torn"}, attachment.Namespace{BootID: "boot-1"}
		}, sandbox.Judgement{Verdict: sandbox.VerdictGone, Evidence: []string{"its network namespace was not recorded", "no network namespace has the address", "the CNI cache in /cache does not have it"}}},
		"imported, and a namespace has the address": {func(n *Node, h *lease.Holder) {
			h.Origin, n.holders = lease.Imported, map[netip.Addr][]inode{address: {{4, 8}}}
			n.live[inode{4, 8}] = liveNamespace{"it", 9}
		}, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{
			"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it",
			"but an import took that from a CNI cache, and it has the address",
		}}},
		"imported, and another can't be looked into": {func(n *Node, h *lease.Holder) {
			h.Origin, n.uninspected = lease.Imported, []string{"it: no"}
		}, sandbox.Judgement{Verdict: sandbox.VerdictUnknown, Evidence: []string{
			"no mount and no process has its network namespace (inode 4:7)", "the CNI cache in /cache does not have it",
			"but an import took that from a CNI cache, and it may be one that cannot be looked into: it: no",
		}}},
	} {
		n := &Node{
			bootID: "boot-1", live: map[inode]liveNamespace{}, keepers: map[uint64]string{}, namespaces: map[string]attachment.Namespace{},
			cache: Cache{dir: "/cache"},
		}
		h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: known, Since: now.Add(-time.Hour)}
		test.change(n, &h)
		if diff := cmp.Diff(test.want, n.Judge(address, h, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A socket keeps a namespace, and its address still answers.
func TestLookFindsWhatASocketKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	id, opened, fd := idOf(t, path), make(chan error), -1
	go func() {
		runtime.LockOSThread() // The thread ends with its goroutine.
		f, err := os.Open(path)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			_ = f.Close()
		}
		if err == nil {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		}
		opened <- err
	}()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	await(t, "the end of the thread, so that only the socket is left", func() bool {
		all, _, err := sandbox.Search(t.Context(), id.Inode)
		return err == nil && strings.HasPrefix(all[id.Inode].Description, "a socket")
	})
	none := caches(t, nil)
	expect(t, look(t, none), "10.231.77.5", id, sandbox.VerdictAlive, "it is in the network namespace that a socket of process ")
	expect(t, look(t, none), "10.231.77.5", attachment.Namespace{BootID: id.BootID}, sandbox.VerdictUnknown, "that a socket of process ")
	_ = unix.Close(fd)
	expect(t, look(t, none), "10.231.77.5", id, sandbox.VerdictGone, "no mount and no process")
}

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// limitedEnv says that the test runs in a user namespace, where it may set the limits of inotify(7).
const limitedEnv = "RELINK_TEST_LIMITED"

// Other programs of the node use everything that inotify(7) has. The agent still reads the checkpoints, says which
// limit to raise, and watches as soon as it can. Each user namespace has limits of its own.
func TestLimitsOfInotify(t *testing.T) {
	if os.Getenv(limitedEnv) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), limitedEnv+"=1")
		root := []syscall.SysProcIDMap{{Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	limit := func(what, value string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/user/max_inotify_"+what, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	store := checkpoint.OpenStore(t.TempDir())
	write := func(id string) {
		t.Helper()
		if err := os.MkdirAll(store.Dir()+"/"+id, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(store.Dir()+"/"+id+"/eth0.json", []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("c1")

	limit("instances", "0")
	x := must(newIndex(store, func(_, _ indexedSandbox) {}))(t)
	err := x.readChanges()
	if err == nil || !strings.Contains(err.Error(), "raise the sysctl fs.inotify.max_user_instances") || x.sandboxes["c1"].unreadable != 1 {
		t.Fatalf("without an instance: %v, index %+v", err, x)
	}
	defer x.close()
	limit("instances", "9")
	limit("watches", "1")
	x.checkWatches()
	if err := x.readChanges(); err == nil || !strings.Contains(err.Error(), "raise the sysctl fs.inotify.max_user_watches") || x.sandboxes["c1"].unreadable != 1 {
		t.Fatalf("with one watch: %v", err)
	}
	limit("watches", "9")
	x.checkWatches()
	if err := x.readChanges(); err != nil || x.unwatched {
		t.Fatalf("with enough of both: %v", err)
	}
	for len(x.changed) > 0 {
		<-x.changed
	}
	write("c2")
	select {
	case <-x.changed:
	case <-time.After(10 * time.Second):
		t.Error("it is not watched")
	}
}

// A restore by hand can change all records by one file, even if somebody has removed its directory.
func TestRenewedIndicesAreRead(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	err := store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, Namespace: attachment.Namespace{Path: "/run/netns/c1", BootID: "b", Inode: 1},
		Interface: netstate.Interface{
			Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
			Parents: []netstate.Device{{Kind: "nic", Name: "lan0", MTU: 1500, IfIndex: 7}},
		},
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")}, Writer: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	x := must(newIndex(store, func(_, _ indexedSandbox) {}))(t)
	must(0, x.readChanges())(t)
	defer x.close()
	if err := os.RemoveAll(filepath.Dir(store.IndicesPath())); err != nil {
		t.Fatal(err)
	}
	readNext(t, x)
	records := x.sandboxes["c1"].records
	parents := slices.Clone(records[0].Interface.Parents)
	parents[0].IfIndex += 20
	if err := checkpoint.OpenStore(store.Dir()).RenewIndices(t.Context(), []checkpoint.Renewal{{Record: records[0], Parents: parents}}); err != nil {
		t.Fatal(err)
	}
	readNext(t, x)
	if index := x.sandboxes["c1"].records[0].Interface.Parents[0].IfIndex; index != parents[0].IfIndex {
		t.Errorf("the index is %d, not %d", index, parents[0].IfIndex)
	}
}

// A note of a move is read as soon as it is there, also after somebody has removed the directory of all notes.
func TestNotesOfMovesAreRead(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	x := must(newIndex(store, func(_, _ indexedSandbox) {}))(t)
	must(0, x.readChanges())(t)
	defer x.close()
	for _, id := range []string{"c1", "c2"} {
		must(0, os.Mkdir(filepath.Join(store.Dir(), id), 0o700))(t)
		readNext(t, x)
		must(0, store.SaveMove(checkpoint.Move{Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, State: checkpoint.MoveBegun}))(t)
		for deadline := time.Now().Add(10 * time.Second); !x.sandboxes[id].moving && time.Now().Before(deadline); {
			readNext(t, x)
		}
		if !x.sandboxes[id].moving {
			t.Fatalf("nobody has read the note of %s", id)
		}
		must(0, os.RemoveAll(store.MovesPath("")))(t)
		for x.sandboxes[id].moving {
			readNext(t, x)
		}
	}
}

func readNext(t *testing.T, x *index) {
	t.Helper()
	select {
	case <-x.changed:
	case <-time.After(10 * time.Second):
		t.Fatal("it is not watched")
	}
	if err := x.readChanges(); err != nil {
		t.Fatal(err)
	}
}

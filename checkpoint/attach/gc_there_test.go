package attach_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// nothingValid is a list that the runtime made before any ADD.
const nothingValid = `, "cni.dev/valid-attachments": []`

// keepers are ways to keep a network namespace after its sandbox was removed. Each returns what ends it.
var keepers = map[string]func(t *testing.T, path string) (end func()){
	"a socket": func(t *testing.T, path string) func() {
		t.Helper()
		socket := -1
		var failed error
		if err := fresh.In(path, func() { socket, failed = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		return func() { _ = unix.Close(socket) }
	},
	"an open file": func(t *testing.T, path string) func() {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = f.Close() }
	},
	"a thread of process": func(t *testing.T, path string) func() {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		var failed error
		if err := fresh.In(path, func() { failed = cmd.Start() }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	},
}

// eachPluginKind runs the test with each way to have checkpoints. add attaches a sandbox. gc is a GC with more keys, which returns
// what it says on stderr.
func eachPluginKind(t *testing.T, test func(t *testing.T, n *node, add func(id, netns string), gc func(more string) (said string))) {
	t.Run("relink-macvlan", func(t *testing.T) {
		n := newNode(t)
		test(t, n, func(id, netns string) { n.mustCall(t, "ADD", id, netns) }, func(more string) string {
			code, msg, stderr := n.code(t, "GC", "", "", more)
			expectCode(t, "GC", code, msg, 0, "")
			return stderr
		})
	})
	t.Run("relink-checkpoint", func(t *testing.T) {
		s := newStock(t)
		test(t, s.node, func(id, netns string) { s.add(t, id, netns) }, func(more string) string {
			s.result = ""
			out, stderr, err := s.checkpoint("GC", "", "", more)
			if err != nil {
				t.Errorf("GC: %v\n%s", err, out)
			}
			return stderr
		})
	})
}

// The runtime made its list before the ADDs. GC keeps what lives and says so in one line, and forgets the others.
func TestGCWithAListFromBeforeTheADD(t *testing.T) {
	eachPluginKind(t, func(t *testing.T, n *node, add func(id, netns string), gc func(string) string) {
		alive, gone := fresh.Sandbox(t), fresh.Sandbox(t)
		add("alive", alive)
		add("gone", gone)
		testnode.EndSandbox(t, gone)
		var said string
		n.awaitCheckpoints(t, func() { said = gc(nothingValid) }, "alive")
		want := "GC keeps what the runtime does not list, as its network namespace is not proven gone: eth0 of alive on lan: it is at " + alive + "\n"
		if !strings.HasSuffix(said, ": "+want) || strings.Count(said, "\n") != 1 {
			t.Errorf("said %q, want %q", said, want)
		}
		testnode.EndSandbox(t, alive)
		n.awaitCheckpoints(t, func() { said = gc(nothingValid) })
		if said != "" {
			t.Errorf("nothing is kept, and it says %q", said)
		}
	})
}

// Nothing leads to the namespace any more, and it is still somebody's.
func TestGCKeepsWhatASocketOrAProcessKeeps(t *testing.T) {
	for what, keep := range keepers {
		t.Run(what, func(t *testing.T) {
			eachPluginKind(t, func(t *testing.T, n *node, add func(id, netns string), gc func(string) string) {
				netns := fresh.Sandbox(t)
				add("c1", netns)
				end := keep(t, netns)
				fresh.Remove(t, netns)
				said := gc(nothingValid)
				if diff := cmp.Diff([]string{"c1"}, n.recorded(t)); diff != "" {
					t.Errorf("checkpoints (-want +got):\n%s", diff)
				}
				if !strings.Contains(said, "eth0 of c1 on lan: nothing leads to it at "+netns) || !strings.Contains(said, what) {
					t.Errorf("said %q", said)
				}
				end()
				n.awaitCheckpoints(t, func() { gc(nothingValid) })
			})
		})
	}
}

// A container was stopped and started again: it has its ID from before and another sandbox. The list is from before that.
func TestGCKnowsAContainerThatWasStartedAgain(t *testing.T) {
	eachPluginKind(t, func(t *testing.T, n *node, add func(id, netns string), gc func(string) string) {
		was, is := fresh.Sandbox(t), fresh.Sandbox(t)
		add("c1", was)
		testnode.EndSandbox(t, was)
		// host-local gives no container a second address.
		if err := os.RemoveAll(filepath.Join(n.Dir, "ipam")); err != nil {
			t.Fatal(err)
		}
		add("c1", is)
		gc(nothingValid)
		r, err := n.Store.Load("c1", "eth0")
		if err != nil || r.Namespace.Path != is {
			t.Errorf("%+v, %v", r.Namespace, err)
		}
		testnode.EndSandbox(t, is)
		if said := gc(`, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`); said != "" {
			t.Errorf("said %q", said)
		}
		if _, err := n.Store.Load("c1", "eth0"); err != nil {
			t.Errorf("the runtime lists it, and it is forgotten: %v", err)
		}
	})
}

// In a container the processes of the node are not seen. So nothing proves that they have left a namespace.
func TestGCThatSeesNotAllProcesses(t *testing.T) {
	n := newNode(t)
	netns := fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", netns)
	testnode.EndSandbox(t, netns)
	gc := n.plugin("GC", "", "", nothingValid)
	inContainer := exec.Command("unshare", "--pid", "--fork", "--mount-proc", gc.Path)
	inContainer.Env, inContainer.Stdin = gc.Env, gc.Stdin
	code, msg, said := coded(t, inContainer)
	expectCode(t, "GC", code, msg, 0, "")
	if !strings.Contains(said, "eth0 of c1 on lan: it is not at "+netns+", and what keeps it elsewhere cannot be seen: the processes of the node are not seen from here") {
		t.Errorf("said %q", said)
	}
	if diff := cmp.Diff([]string{"c1"}, n.recorded(t)); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
	n.awaitCheckpoints(t, func() { n.code(t, "GC", "", "", nothingValid) })
}

// An IPAM plugin that goes by the list alone keeps the addresses of what is kept.
func TestGCTellsTheIPAMPluginWhatIsKept(t *testing.T) {
	n := newNode(t)
	// It notes the configuration of each call.
	got := filepath.Join(n.Dir, "got")
	script := fmt.Sprintf("#!/bin/sh\ncat >%s-$CNI_COMMAND\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.9.0.9/24\"}]}'\n", got)
	if err := os.WriteFile(filepath.Join(n.Dir, "by-list"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	call := func(command, id, netns, more string) {
		t.Helper()
		cmd := n.plugin(command, id, netns, `, "ipam": {"type": "by-list"}`+more)
		cmd.Env = append(cmd.Env, "CNI_PATH="+n.Dir)
		code, msg, _ := coded(t, cmd)
		expectCode(t, command, code, msg, 0, "")
	}
	listed := func() []map[string]string {
		t.Helper()
		b, err := os.ReadFile(got + "-GC")
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			List []map[string]string `json:"cni.dev/valid-attachments"`
		}
		if err := json.Unmarshal(b, &config); err != nil {
			t.Fatal(err)
		}
		return config.List
	}
	sandbox := fresh.Sandbox(t)
	call("ADD", "c1", sandbox, "")
	const other = `, "cni.dev/valid-attachments": [{"containerID": "other", "ifname": "net1"}]`
	call("GC", "", "", other)
	otherIs := map[string]string{"containerID": "other", "ifname": "net1"}
	if diff := cmp.Diff([]map[string]string{{"containerID": "c1", "ifname": "eth0"}, otherIs}, listed()); diff != "" {
		t.Errorf("while c1 lives (-want +got):\n%s", diff)
	}
	testnode.EndSandbox(t, sandbox)
	n.awaitCheckpoints(t, func() { call("GC", "", "", other) })
	if diff := cmp.Diff([]map[string]string{otherIs}, listed()); diff != "" {
		t.Errorf("when c1 is gone (-want +got):\n%s", diff)
	}
}

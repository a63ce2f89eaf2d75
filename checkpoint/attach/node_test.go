package attach_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { testnode.Main(m) }

// node is a host. The plugins attach pods to it as for a runtime.
type node struct{ *testnode.Node }

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{testnode.New(t)}
}

// withStoreAt returns the same node with other files, all in the directory.
func (n *node) withStoreAt(dir string) *node {
	other := *n.Node
	other.Dir, other.Store = dir, checkpoint.OpenStore(filepath.Join(dir, "checkpoints"))
	return &node{&other}
}

// plugin prepares a run of relink-macvlan.
func (n *node) plugin(command, id, netns, more string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testnode.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id,
		"CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id,
	}
	cmd.Stdin = strings.NewReader(mergedConfig(
		`{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0", "checkpointDir": %q,
		  "ipam": {"type": "host-local", "subnet": "10.9.0.0/16", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}%s}`,
		n.Store.Dir(), filepath.Join(n.Dir, "ipam"), more))
	return cmd
}

// mergedConfig returns the configuration as libcni passes it on: each key once, with its last value. Text that is no object
// stays as it is.
func mergedConfig(format string, args ...any) string {
	config := fmt.Sprintf(format, args...)
	var keys map[string]json.RawMessage
	if json.Unmarshal([]byte(config), &keys) != nil {
		return config
	}
	b, err := json.Marshal(keys)
	if err != nil {
		return config
	}
	return string(b)
}

// call runs the plugin and returns its output.
func (n *node) call(command, id, netns string) (string, error) {
	var out bytes.Buffer
	cmd := n.plugin(command, id, netns, "")
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (n *node) mustCall(t *testing.T, command, id, netns string) string {
	t.Helper()
	out, err := n.call(command, id, netns)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, id, err, out)
	}
	return out
}

// restore runs relink restore.
func (n *node) restore() (string, error) {
	out, err := n.restoreCommand().CombinedOutput()
	return string(out), err
}

func (n *node) restoreCommand() *exec.Cmd {
	return n.Command("restore", "--wait", "5s")
}

// leasedAddresses returns the addresses that the IPAM plugin has given.
func (n *node) leasedAddresses(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Dir, "ipam/lan/10.9.*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// expectNothing expects that no attachment has left anything.
func (n *node) expectNothing(t *testing.T, netns string) {
	t.Helper()
	if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "eth0") || strings.Contains(out, "rlnk") {
		t.Errorf("an interface is left:\n%s", out)
	}
	if held := n.leasedAddresses(t); len(held) > 0 {
		t.Errorf("addresses are left: %v", held)
	}
	if records, unreadable, err := n.Store.List(); err != nil || len(records)+len(unreadable) > 0 {
		t.Errorf("checkpoints are left: %v %v %v", records, unreadable, err)
	}
	if left, _ := filepath.Glob(filepath.Join(n.Store.Dir(), "[a-z]*")); len(left) > 0 {
		t.Errorf("directories are left: %v", left)
	}
}

// awaitCheckpoints repeats a GC until there are checkpoints of just these containers, for half a minute at most. While another
// namespace of this machine has the inode of one that is gone, nothing proves that.
func (n *node) awaitCheckpoints(t *testing.T, gc func(), ids ...string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		gc()
		left := n.recorded(t)
		if slices.Equal(left, ids) {
			return
		}
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("checkpoints are left of %v, wanted of %v", left, ids)
		}
	}
}

// recorded returns the containers that have checkpoints, in their order.
func (n *node) recorded(t *testing.T) (ids []string) {
	t.Helper()
	records, unreadable, err := n.Store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(unreadable, err)
	}
	for _, r := range records {
		ids = append(ids, r.Attachment.ContainerID)
	}
	slices.Sort(ids)
	return ids
}

// code runs the plugin with more keys in its configuration. It returns the code of its error, 0 for none, the text of
// the error, and stderr.
func (n *node) code(t *testing.T, command, id, netns, more string) (code int, msg, stderr string) {
	t.Helper()
	return coded(t, n.plugin(command, id, netns, more))
}

func coded(t *testing.T, cmd *exec.Cmd) (code int, msg, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if cmd.Run() == nil {
		return 0, "", errs.String()
	}
	code, msg = parseError(t, []byte(out.String()))
	return code, msg, errs.String()
}

// parseError reads the error that a plugin printed.
func parseError(t *testing.T, out []byte) (code int, msg string) {
	t.Helper()
	var said struct {
		Code int
		Msg  string
	}
	if err := json.Unmarshal(out, &said); err != nil || said.Code == 0 {
		t.Fatalf("no error in JSON: %v\n%s", err, out)
	}
	return said.Code, said.Msg
}

func expectCode(t *testing.T, what string, code int, msg string, wantCode int, want string) {
	t.Helper()
	if code != wantCode || !strings.Contains(msg, want) {
		t.Errorf("%s: code %d: %s\nwant code %d: %s", what, code, msg, wantCode, want)
	}
}

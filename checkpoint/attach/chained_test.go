package attach_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// stock is a list of the reference plugin and relink-checkpoint. A test runs each of them by hand as libcni runs a
// list.
type stock struct {
	*node
	version string
	// result is the output of the reference plugin's last ADD.
	result string
	// env is further environment of the plugins.
	env []string
}

func newStock(t *testing.T) *stock { return &stock{node: newNode(t), version: "1.1.0"} }

// run runs a plugin with these keys in its configuration.
func (s *stock) run(name, command, id, netns, keys string) (stdout, stderr string, err error) {
	cmd := exec.Command(filepath.Join(testnode.Bin, name))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id,
		"CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id,
	}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdin = strings.NewReader(mergedConfig(`{"cniVersion": %q, "name": "lan", "type": %q%s}`, s.version, name, keys))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (s *stock) macvlan(t *testing.T, command, id, netns string) string {
	t.Helper()
	out, stderr, err := s.run("macvlan", command, id, netns, fmt.Sprintf(
		`, "master": "lan0", "ipam": {"type": "host-local", "subnet": "10.9.0.0/16", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}`,
		filepath.Join(s.Dir, "ipam")))
	if err != nil {
		t.Fatalf("macvlan %s: %v\n%s%s", command, err, out, stderr)
	}
	return out
}

func (s *stock) checkpoint(command, id, netns, more string) (stdout, stderr string, err error) {
	keys := fmt.Sprintf(`, "checkpointDir": %q%s`, s.Store.Dir(), more)
	if s.result != "" {
		keys += `, "prevResult": ` + s.result
	}
	return s.run("relink-checkpoint", command, id, netns, keys)
}

// add attaches a sandbox with both plugins.
func (s *stock) add(t *testing.T, id, netns string) string {
	t.Helper()
	s.result = s.macvlan(t, "ADD", id, netns)
	out, stderr, err := s.checkpoint("ADD", id, netns, "")
	if err != nil || stderr != "" {
		t.Fatalf("relink-checkpoint: %v\n%s%s", err, out, stderr)
	}
	return out
}

// del detaches a sandbox with both plugins, the last one first.
func (s *stock) del(t *testing.T, id, netns string) {
	t.Helper()
	s.result = ""
	if out, stderr, err := s.checkpoint("DEL", id, netns, ""); err != nil || out+stderr != "" {
		t.Fatalf("relink-checkpoint DEL: %v\n%s%s", err, out, stderr)
	}
	s.macvlan(t, "DEL", id, netns)
}

// expectError runs relink-checkpoint and expects this error.
func (s *stock) expectError(t *testing.T, code int, message, command, id, netns, more string) {
	t.Helper()
	out, _, err := s.checkpoint(command, id, netns, more)
	var said struct {
		Code int
		Msg  string
	}
	if jsonErr := json.Unmarshal([]byte(out), &said); jsonErr != nil || err == nil || said.Code != code || !strings.Contains(said.Msg, message) {
		t.Errorf("%s: %v %s: wanted code %d, %s", command, err, out, code, message)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Error(err)
	}
	was, _ := json.Marshal(x)
	is, _ := json.Marshal(y)
	return bytes.Equal(was, is)
}

// One more line in the list is enough: after the parent was lost, the interface of a stock plugin comes back. After DEL
// it is gone.
func TestChainedIsRestored(t *testing.T) {
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			s, netns := newStock(t), fresh.Sandbox(t)
			s.version = version
			if out := s.add(t, "c1", netns); !sameJSON(t, s.result, out) {
				t.Errorf("prevResult was\n%s, printed was\n%s", s.result, out)
			}
			r, err := s.Store.Load("c1", "eth0")
			if err != nil || r.Writer != "relink-checkpoint" || r.Pod.Name != "c1" || r.Attachment.Network != "lan" || r.Interface.Parents[0].Name != "lan0" {
				t.Fatalf("%+v %v", r, err)
			}
			before := fresh.IP(t, netns, "-o addr show eth0 scope global") + fresh.IP(t, netns, "route")
			s.LoseParent(t)
			if out, err := s.restore(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if after := fresh.IP(t, netns, "-o addr show eth0 scope global") + fresh.IP(t, netns, "route"); after != before {
				t.Errorf("before: %s\nafter: %s", before, after)
			}
			s.del(t, "c1", netns)
			s.expectNothing(t, netns)
		})
	}
}

func TestChainedCheck(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	s.add(t, "c1", netns)
	if out, _, err := s.checkpoint("CHECK", "c1", netns, ""); err != nil {
		t.Errorf("%v %s", err, out)
	}
	fresh.IP(t, netns, "link set eth0 mtu 1400")
	fresh.IP(t, netns, "route del default")
	s.expectError(t, 100, "eth0: route 0.0.0.0/0 via 10.9.0.1 is missing", "CHECK", "c1", netns, "")
	if err := s.Store.Forget("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	s.expectError(t, 3, "no checkpoint", "CHECK", "c1", netns, "")
}

// An interface that cannot be remembered does not keep the pod from starting.
func TestChainedPassesOnWhatItCantRemember(t *testing.T) {
	for name, link := range map[string]string{
		"another kind": "link add eth0 type veth peer name eth1", "no interface": "link set lo up",
	} {
		t.Run(name, func(t *testing.T) {
			s, netns := newStock(t), fresh.Sandbox(t)
			fresh.IP(t, netns, link)
			s.result = `{"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "` + netns + `"}], "dns": {}, "of another plugin": [1]}`
			out, stderr, err := s.checkpoint("ADD", "c1", netns, "")
			if err != nil || !sameJSON(t, s.result, out) {
				t.Errorf("%v %s", err, out)
			}
			if !strings.HasPrefix(stderr, "relink-checkpoint: eth0 of c1 can't be remembered") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("said: %s", stderr)
			}
			if out, _, err := s.checkpoint("CHECK", "c1", netns, ""); err != nil {
				t.Errorf("%v %s", err, out)
			}
			if left, _ := filepath.Glob(filepath.Join(s.Store.Dir(), "c1*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestChainedRefuses(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	s.expectError(t, 7, "prevResult", "ADD", "c1", netns, "")
	s.result = s.macvlan(t, "ADD", "c1", netns)
	file := filepath.Join(s.Dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.expectError(t, 5, "not a directory", "ADD", "c1", netns, fmt.Sprintf(`, "checkpointDir": %q`, file))
	s.expectError(t, 7, "checkpointDir", "ADD", "c1", netns, `, "checkpointDir": 7`)
	s.expectError(t, 4, "CNI_NETNS", "ADD", "c1", file, "")
	if left, _ := filepath.Glob(filepath.Join(s.Store.Dir(), "c1*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	s.version = "0.2.0"
	s.expectError(t, 1, "must be one of 0.3.0, ", "ADD", "c1", netns, "")
}

func TestChainedDelOfWhatIsGone(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	for _, path := range []string{netns, "/run/netns/missing", ""} {
		if out, stderr, err := s.checkpoint("DEL", "c1", path, ""); err != nil || out+stderr != "" {
			t.Errorf("%q: %v %s%s", path, err, out, stderr)
		}
	}
	s.expectNothing(t, netns)
}

func TestChainedStatus(t *testing.T) {
	s := newStock(t)
	if out, _, err := s.checkpoint("STATUS", "", "", ""); err != nil {
		t.Errorf("%v %s", err, out)
	}
	s.expectError(t, 50, "checkpoint directory", "STATUS", "", "", `, "checkpointDir": "/proc/relink"`)
}

func TestChainedGC(t *testing.T) {
	s, a, b := newStock(t), fresh.Sandbox(t), fresh.Sandbox(t)
	s.add(t, "c1", a)
	s.add(t, "c2", b)
	s.result = ""
	if _, stderr, err := s.checkpoint("GC", "", "", ""); err != nil || !strings.Contains(stderr, "every checkpoint is kept") {
		t.Errorf("%v %s", err, stderr)
	}
	testnode.EndSandbox(t, a)
	testnode.EndSandbox(t, b) // The runtime lists it all the same.
	s.awaitCheckpoints(t, func() {
		if out, _, err := s.checkpoint("GC", "", "", `, "cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]`); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}, "c2")
}

// Between the two ADDs, relink capture writes a checkpoint without knowing the sandbox's name. The second ADD replaces
// it.
func TestChainedReplacesAnUnnamedCheckpoint(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	s.add(t, "c1", netns)
	r, err := s.Store.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	save := func() {
		r.Attachment.ContainerID, r.Attachment.Network = checkpoint.UnnamedID(r.Namespace), checkpoint.NetworkUnknown
		if err := s.Store.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	save()
	if out, _, err := s.checkpoint("ADD", "c1", netns, ""); err != nil {
		t.Fatal(out)
	}
	records, _, err := s.Store.List()
	if err != nil || len(records) != 1 || records[0].Attachment.ContainerID != "c1" {
		t.Errorf("%+v %v", records, err)
	}
	save()
	s.del(t, "c1", netns)
	s.expectNothing(t, netns)
}

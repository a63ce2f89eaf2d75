package attach_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// A relative path would be another directory for each caller. It is refused, and nothing is written there. A DEL still
// detaches.
func TestRelativePathsAreRefused(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	s.result = s.macvlan(t, "ADD", "c1", netns)
	wd := t.TempDir()
	run := func(name, command, netns, keys, variable string) (int, string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(testnode.Bin, name))
		cmd.Dir = wd
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", variable,
		}
		own := map[string]string{"relink-macvlan": `"master": "lan0", `, "relink-vlan": `"master": "lan0", "vlanId": 3, `}[name]
		cmd.Stdin = strings.NewReader(mergedConfig(`{"cniVersion": "1.1.0", "name": "lan", "type": %q, `+own+`"prevResult": %s,
			"ipam": {"type": "relink-ipam", "subnet": "10.9.0.0/16", "dataDir": %q}, "cni.dev/valid-attachments": []%s}`, name, s.result, filepath.Join(s.Dir, "leases"), keys))
		code, msg, _ := coded(t, cmd)
		return code, msg
	}
	const relative = `, "checkpointDir": "here"`
	absolute := fmt.Sprintf(`, "checkpointDir": %q`, s.Store.Dir())
	for _, name := range []string{"relink-checkpoint", "relink-macvlan", "relink-vlan"} {
		for _, command := range []string{"ADD", "CHECK", "STATUS", "GC"} {
			code, msg := run(name, command, netns, relative, "A=")
			expectCode(t, name+" "+command, code, msg, 7, `invalid "checkpointDir": "here": must be an absolute path`)
			code, msg = run(name, command, netns, "", "RELINK_CHECKPOINT_DIR=here")
			expectCode(t, name+" "+command, code, msg, 4, `invalid RELINK_CHECKPOINT_DIR: "here": must be an absolute path`)
		}
		code, msg := run(name, "DEL", netns, relative, "RELINK_CHECKPOINT_DIR="+s.Store.Dir())
		expectCode(t, name+" DEL", code, msg, 0, "")
		code, msg = run(name, "ADD", "ns", absolute, "A=")
		expectCode(t, name+" ADD", code, msg, 4, `invalid CNI_NETNS: "ns": must be an absolute path`)
	}
	for _, name := range []string{"relink-ipam", "relink-macvlan"} {
		for keys, want := range map[string]string{
			`, "ipam": {"type": "relink-ipam", "subnet": "10.9.0.0/16", "dataDir": "here"}`:                            `invalid "ipam.dataDir": "here": must be an absolute path`,
			`, "ipam": {"type": "relink-ipam", "subnet": "10.9.0.0/16", "dataDir": "/x", "resolvConf": "resolv.conf"}`: `invalid "ipam.resolvConf": "resolv.conf": must be an absolute path`,
		} {
			code, msg := run(name, "ADD", fresh.Sandbox(t), absolute+keys, "A=")
			expectCode(t, name, code, msg, 7, want)
		}
		code, msg := run(name, "ADD", fresh.Sandbox(t), absolute+`, "ipam": {"type": "relink-ipam", "subnet": "10.9.0.0/16", "dataDir": ""}`, "RELINK_IPAM_DIR=here")
		expectCode(t, name, code, msg, 4, `invalid RELINK_IPAM_DIR: "here": must be an absolute path`)
	}
	if left, err := os.ReadDir(wd); err != nil || len(left) > 0 {
		t.Errorf("written below the caller's directory: %v %v", left, err)
	}
	if _, err := s.Store.Load("c1", "eth0"); err == nil {
		t.Error("remembered all the same")
	}
}

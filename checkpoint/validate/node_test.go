package validate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/test/fresh"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// needing is a network whose plugin needs this of the node.
func needing(needs ...need) []chain { return []chain{{plugins: []plugin{{needs: needs}}}} }

func TestModulesAreLoadedBuiltInOrAtHand(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/proc/sys/kernel/osrelease", "6.1.0\n")
	if there, err := hasModule(root, "macvlan"); err == nil {
		t.Errorf("without lists: %v", there)
	}
	write(t, root+"/sys/module/bonding/refcnt", "0\n")
	write(t, root+"/lib/modules/6.1.0/modules.builtin", "kernel/net/8021q/8021q.ko\n")
	write(t, root+"/lib/modules/6.1.0/modules.dep", "kernel/drivers/net/macvlan.ko.xz: kernel/a/helper.ko.xz\nkernel/a/x.ko: kernel/drivers/net/ipvlan.ko\n")
	write(t, root+"/sys/module/veth/refcnt", "0\n")
	for name, want := range map[string]bool{"bonding": true, "8021q": true, "macvlan": true, "veth": true, "ipvlan": false, "bond": false, "vlan": false} {
		if there, err := hasModule(root, name); err != nil || there != want {
			t.Errorf("%s: %v, %v, want %v", name, there, err, want)
		}
	}
}

func TestUnwritableSaysWhy(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	for path, want := range map[string]string{
		dir: "", dir + "/not/yet": "", dir + "/file": dir + "/file is not a directory", "/proc/relink/checkpoints": "/proc: no such file or directory",
	} {
		got := ""
		if err := checkWritable(path); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fresh.AsNobody(t, func() {
		// A plugin runs as root, so it may write there.
		file := need{key: checkpointsKey, value: "/proc/version"}
		node := probeNode(needing(need{key: checkpointsKey, value: dir}, file), nil)
		want := []string{"whether a checkpoint can be written: " + dir + ": permission denied: run as root"}
		if diff := cmp.Diff(want, node.Unknown); diff != "" {
			t.Errorf("as nobody (-want +got):\n%s", diff)
		}
		if problem := node.Problems[file]; problem != "no checkpoint can be written there: /proc/version is not a directory" {
			t.Errorf("as nobody: %s", problem)
		}
	})
}

func TestLookFindsProgramsAndDevices(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/relink-macvlan", "#!/bin/sh\n")
	write(t, dir+"/data", "")
	if err := os.Chmod(dir+"/relink-macvlan", 0o755); err != nil {
		t.Fatal(err)
	}
	chains := needing(need{key: typeKey, value: "relink-macvlan"}, need{key: typeKey, value: "data"}, need{key: ipamKey, value: "none"})
	chains[0].plugins[0].request = &netconf.Request{}
	node := probeNode(chains, []string{"/nowhere", dir})
	const missing = "is not in the runtime's directories (/nowhere, d)"
	want := map[need]string{
		{key: typeKey, value: "relink-macvlan"}: "", {key: typeKey, value: "data"}: missing + ": install it there, or name the directory by --cni-bin", {key: ipamKey, value: "none"}: missing,
	}
	for n, problem := range node.Problems {
		node.Problems[n] = strings.ReplaceAll(problem, dir, "d")
	}
	if diff := cmp.Diff(want, node.Problems, cmp.AllowUnexported(need{})); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
	if _, ok := node.Devices.ByName("lo"); !ok || len(node.Unknown) > 0 {
		t.Errorf("devices: %v, not looked at: %v", node.Devices, node.Unknown)
	}
}

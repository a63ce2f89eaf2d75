package validate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		node := ProbeNode(Needs{Stores: []string{dir, "/proc/version"}}, nil)
		want := []string{"whether a checkpoint can be written: " + dir + ": permission denied: run as root"}
		if diff := cmp.Diff(want, node.Unknown); diff != "" {
			t.Errorf("as nobody (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"/proc/version": "/proc/version is not a directory"}, node.Stores); diff != "" {
			t.Errorf("as nobody (-want +got):\n%s", diff)
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
	node := ProbeNode(Needs{Plugins: []string{"relink-macvlan", "data", "none"}, Devices: true}, []string{"/nowhere", dir})
	if !node.Plugins["relink-macvlan"] || node.Plugins["data"] || node.Plugins["none"] {
		t.Errorf("plugins: %v", node.Plugins)
	}
	if _, ok := node.Devices.ByName("lo"); !ok || len(node.Unknown) > 0 {
		t.Errorf("devices: %v, not looked at: %v", node.Devices, node.Unknown)
	}
}

package netfix_test

import (
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/test/fresh"
)

// An import onto the wrong device is done again, both before a restore and after one.
func TestAnImportOntoTheWrongDeviceIsRedone(t *testing.T) {
	n, netns, live := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	fresh.Run(t, "", "ip link add wrong0 type veth peer name wrong1; ip link set wrong0 up; ip link set wrong1 up")
	t.Cleanup(func() { fresh.IP(t, "", "link del wrong0") })
	attach(t, live, 6)
	gone := n.writeImportFile(t, netns, 5)
	there := n.writeImportFile(t, live, 6)
	onto := func(parent string, dryRun bool, want string) netfix.FileReport {
		t.Helper()
		report, err := netfix.Run(t.Context(), netfix.Options{
			Store: n.Store, Dir: n.dir, Parent: netfix.ParentSpec{Devices: []string{parent}}, Replace: true, DryRun: dryRun,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{gone, there} {
			if o := report.Files[i]; !strings.HasSuffix(o.Path, name) || i == 0 && !strings.HasPrefix(string(o.State)+" "+o.Reason, want) {
				t.Errorf("%s: %s %s, want %s", o.Path, o.State, o.Reason, want)
			}
		}
		return report
	}
	const redone = "it was imported onto wrong0: remembered anew from the file, on lan0"
	onto("wrong0", false, "imported eth0 is gone from the sandbox: remembered from the file, on wrong0")
	onto("wrong0", false, "kept it was imported like this already")
	onto("lan0", true, "to replace "+redone)
	if on := n.Records(t)[0].Interface.Parents[0].Name; on != "wrong0" {
		t.Errorf("a dry run wrote %s", on)
	}

	// First it is restored onto the wrong device.
	n.expectRestore(t, 2, restore.AsRecorded, restore.Restored)
	onto("lan0", false, "refused it was imported onto wrong0, and eth0 is there, on wrong0")
	fresh.Run(t, netns, "ip link del eth0")
	report := onto("lan0", false, "replaced "+redone)
	if o := report.Files[1]; o.State != netfix.Kept || o.Reason != "its checkpoint is not from a file: relink import wrote it, from the live interface" {
		t.Errorf("the other: %s %s", o.State, o.Reason)
	}
	n.expectRestore(t, 2, restore.AsRecorded, restore.Restored)
	if on := fresh.Run(t, netns, "ip -o link show eth0"); !strings.Contains(on, mac(5)) {
		t.Error(on)
	}
	if on := n.Records(t)[0].Interface.Parents[0].Name; on != "lan0" {
		t.Errorf("it is on %s", on)
	}
	// The same with the command.
	n.Says(t, 0, "import "+n.dir+" --parent lan0 --replace", "2 kept\n")
}

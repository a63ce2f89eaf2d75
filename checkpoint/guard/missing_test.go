package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// CRI-O keeps the network namespace of a pod that has ended, and Multus detaches interfaces of pods that live on. A
// checkpoint that vanishes without a DEL is missing all the same.
func TestADetachedInterfaceIsNotMissing(t *testing.T) {
	g := &guard{Options: Options{Store: checkpoint.OpenStore(t.TempDir())}, dir: t.TempDir(), log: os.Stderr}
	g.journal.Plan.CacheDir = t.TempDir()
	host, err := kernel.OpenHost() // It is a namespace that lives on.
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	results := filepath.Join(g.journal.Plan.CacheDir, "results")
	if err := os.Mkdir(results, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(id string) string { return filepath.Join(results, "lan-"+id+"-eth0") }
	for _, id := range []string{"detached", "vanished", "uncached"} {
		r := checkpoint.Record{
			Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, Namespace: host.Identity(), Writer: "test",
			Interface: netstate.Interface{
				Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", Up: true, MAC: "02:00:00:00:00:01", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
				Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "lan0", MAC: "02:00:00:00:00:02", MTU: 1500}},
			},
			CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
		}
		if err := g.Store.Save(r); err != nil {
			t.Fatal(err)
		}
		if id == "uncached" {
			continue
		}
		entry := fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": "eth0", "networkName": "lan", "netns": %q, "result": {}}`, id, host.Path())
		if err := os.WriteFile(file(id), []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.recordAttachments(); err != nil {
		t.Fatal(err)
	}
	for _, recorded := range g.journal.Attachments {
		if err := g.Store.Forget(recorded.Attachment.ContainerID, "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file("detached")); err != nil {
		t.Fatal(err)
	}
	g.reportMissing(t.Context())
	const message = " eth0: its checkpoint has vanished, and its sandbox is not proven gone: recreate the pod"
	if got, want := fmt.Sprintf("%q", foldTroubles(g.troubles)), fmt.Sprintf("%q", []string{"sandbox uncached" + message, "sandbox vanished" + message}); got != want {
		t.Errorf("%s, and not %s", got, want)
	}
}

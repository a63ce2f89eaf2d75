package hostends_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/test/fresh"
)

// everyKey has all keys of host access. Services are not among them: a capture cannot tell them from other networks.
const everyKey = `, "hostAccess": {"ifName": "node0", "extra": ["10.96.0.0/12", "169.254.20.10", "fd00:96::/108"], "preserveSource": true, "mark": "0x20000000", "masquerade": true}`

// A capture that renews a checkpoint keeps its host access. A capture of a pod whose checkpoint is lost finds it again.
func TestCaptureKnowsHostAccess(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, everyKey)
	want := n.Records(t)[0].HostAccess
	if want == nil || !want.Masquerade {
		t.Fatalf("the ADD recorded %+v", want)
	}
	n.Says(t, 0, "capture --refresh", "")
	if diff := cmp.Diff(stored(t, want), stored(t, n.Records(t)[0].HostAccess)); diff != "" {
		t.Errorf("after capture --refresh (-want +got):\n%s", diff)
	}
	lost := filepath.Join(n.Store.Dir(), p.id, "eth0.json")
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	n.Says(t, 0, "capture", "")
	records := n.Records(t)
	if len(records) != 1 {
		t.Fatalf("%d checkpoints after the capture", len(records))
	}
	if diff := cmp.Diff(stored(t, want), stored(t, records[0].HostAccess)); diff != "" {
		t.Errorf("after the checkpoint was lost (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(n.Store.Dir(), records[0].Attachment.ContainerID, "eth0.json"), []byte(`{"version": 6, "attachment"`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Says(t, 0, "capture --refresh", "")
	if got := n.Records(t); len(got) != 1 || got[0].HostAccess == nil || got[0].HostAccess.HostName != want.HostName {
		t.Errorf("after the checkpoint was torn: %+v", got)
	}
}

// A pod gives itself an address of somebody else, and its checkpoint is lost. The node does not send there.
func TestACaptureBelievesOnlyWhatWasGiven(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	const foreign = "198.51.100.53"
	fresh.Run(t, p.netns, "ip address add "+foreign+"/32 dev eth0; ip address add "+foreign+"/32 dev host0")
	if err := os.Remove(filepath.Join(n.Store.Dir(), p.id, "eth0.json")); err != nil {
		t.Fatal(err)
	}
	n.Says(t, 0, "capture", "")
	n.Says(t, 0, "restore", "")
	access := n.Records(t)[0].HostAccess
	if access == nil || !slices.Equal(access.Addresses, []netip.Addr{netip.MustParseAddr(p.ipv4), netip.MustParseAddr(p.ipv6)}) {
		t.Errorf("the checkpoint has %+v", access)
	}
	if out := fresh.IP(t, "", "route show table 1140"); strings.Contains(out, foreign) {
		t.Errorf("the node sends there:\n%s", out)
	}
}

// A capture tells masquerade, so no restore takes that away. A route that the pod has made through the node gets no address of the node.
func TestACaptureKnowsMasqueradeOfServices(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, `, "hostAccess": {"services": ["10.96.0.0/12"], "masquerade": true}`)
	fresh.Run(t, p.netns, "ip route add 0.0.0.0/0 dev host0 proto 115 metric 9")
	if err := os.Remove(filepath.Join(n.Store.Dir(), p.id, "eth0.json")); err != nil {
		t.Fatal(err)
	}
	n.Says(t, 0, "capture", "")
	access := n.Records(t)[0].HostAccess
	if access == nil || !access.Masquerade || len(access.Services) != 1 || len(access.Extra) != 0 {
		t.Errorf("the checkpoint has %+v", access)
	}
	n.Says(t, 0, "restore", "")
	if rules := fresh.Run(t, "", "iptables-save -t nat"); !strings.Contains(rules, "-m conntrack --ctstate DNAT -j SNAT") || strings.Contains(rules, "ctorigdst") {
		t.Errorf("the rules are others:\n%s", rules)
	}
}

// stored is the host access as a checkpoint has it.
func stored(t *testing.T, a *hostaccess.Access) string {
	t.Helper()
	if a == nil {
		return "none"
	}
	slices.SortFunc(a.Extra, netip.Prefix.Compare)
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

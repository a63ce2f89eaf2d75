package attach_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// lan is a node whose parent is on a bridge, with another host on the same bridge.
type lan struct {
	*node
	neighbour, mac string
}

func newLAN(t *testing.T) *lan {
	l := &lan{node: newNode(t), neighbour: fresh.Sandbox(t), mac: "02:00:00:00:0a:0a"}
	fresh.IP(t, "", "link add br0 type bridge")
	t.Cleanup(func() { fresh.IP(t, "", "link del br0") })
	fresh.IP(t, "", "link set br0 up")
	fresh.IP(t, "", "link set lan1 master br0")
	fresh.IP(t, "", "link add wire0 type veth peer name eth0 address "+l.mac+" netns "+l.neighbour)
	// Otherwise it would outlive the namespace of its other end for a moment.
	t.Cleanup(func() { fresh.IP(t, "", "link del wire0") })
	fresh.IP(t, "", "link set wire0 master br0 up")
	fresh.IP(t, l.neighbour, "link set eth0 up")
	return l
}

// has gives the neighbour an address.
func (l *lan) has(t *testing.T, address string) {
	t.Helper()
	fresh.IP(t, l.neighbour, "address add "+address+" dev eth0 nodad")
}

// run calls the plugin with relink-ipam and conflict detection.
func (l *lan) run(command, id, netns, keys string, env ...string) (string, error) {
	cmd := exec.Command(filepath.Join(testnode.Bin, "relink-macvlan"))
	cmd.Env = append([]string{
		"CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0",
	}, env...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0", "checkpointDir": %q, "ipam": {
		  "type": "relink-ipam", "dataDir": %q, "conflictDetection": {"probes": 3, "wait": "200ms"},
		  "ranges": [[{"subnet": "10.9.0.0/29"}], [{"subnet": "fd00:9::/64"}]]%s}}`, l.Store.Dir(), filepath.Join(l.Dir, "ipam"), keys))
	out, err := cmd.Output()
	return string(out), err
}

func (l *lan) add(t *testing.T, id, netns, keys string, env ...string) string {
	t.Helper()
	out, err := l.run("ADD", id, netns, keys, env...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var result current.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, ip := range result.IPs {
		all = append(all, ip.Address.String())
	}
	return strings.Join(all, " ")
}

// leases returns the leases, each with its state and its reason.
func (l *lan) leases(t *testing.T) string {
	t.Helper()
	store, err := lease.Open(filepath.Join(l.Dir, "ipam"), "lan")
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, lease := range all {
		said = append(said, strings.TrimSpace(fmt.Sprintf("%s %s %s", lease.Address, lease.State, lease.Reason)))
	}
	return strings.Join(said, "\n")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// Another host has an address of each family. Both go into quarantine, the pod gets the next ones, and the pod can be
// reached.
func TestAddGivesNoAddressThatAnotherHostHas(t *testing.T) {
	for name, env := range map[string][]string{"in process": nil, "executed": {"RELINK_IPAM_EXEC=1"}} {
		t.Run(name, func(t *testing.T) {
			l, sandbox := newLAN(t), fresh.Sandbox(t)
			l.has(t, "10.9.0.2/29")
			l.has(t, "fd00:9::2/64")
			expect(t, "addresses", l.add(t, "c1", sandbox, "", env...), "10.9.0.3/29 fd00:9::3/64")
			expect(t, "leases", l.leases(t), "10.9.0.2 quarantined in use by 02:00:00:00:0a:0a\n10.9.0.3 held\n"+
				"fd00:9::2 quarantined in use by 02:00:00:00:0a:0a\nfd00:9::3 held")
			l.has(t, "10.9.0.6/29")
			fresh.Run(t, l.neighbour, "ping -c1 -W5 10.9.0.3")
			if out, err := l.run("DEL", "c1", sandbox, "", env...); err != nil {
				t.Errorf("DEL: %s", out)
			}
		})
	}
}

func TestAddGoesOnUntilAnAddressIsUnused(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	for _, address := range []string{"10.9.0.2/29", "10.9.0.3/29", "10.9.0.4/29"} {
		l.has(t, address)
	}
	expect(t, "addresses", l.add(t, "c1", sandbox, ""), "10.9.0.5/29 fd00:9::2/64")
}

// The owner's address stays its own, whoever uses it. The ADD gives no other address, and the owner does not lose it.
func TestAddRefusesAnAddressOfTheOwnersThatAnotherHostHas(t *testing.T) {
	l, first, second := newLAN(t), fresh.Sandbox(t), fresh.Sandbox(t)
	const sticky = `, "sticky": "pod"`
	expect(t, "addresses", l.add(t, "c1", first, sticky), "10.9.0.2/29 fd00:9::2/64")
	if out, err := l.run("DEL", "c1", first, sticky); err != nil {
		t.Fatal(out)
	}
	l.has(t, "10.9.0.2/29")
	out, err := l.run("ADD", "c2", second, sticky)
	if err == nil || !strings.Contains(out, `"code": 11`) ||
		!strings.Contains(out, "10.9.0.2 is in use on the network by 02:00:00:00:0a:0a, and no other address can take its place (reserved for the owner): end that use") {
		t.Errorf("ADD: %s", out)
	}
	expect(t, "leases", l.leases(t), "10.9.0.2 reserved in use by 02:00:00:00:0a:0a\nfd00:9::2 reserved released")
	if out := fresh.IP(t, second, "-o link"); strings.Contains(out, "eth0") {
		t.Errorf("an interface is left:\n%s", out)
	}
	fresh.IP(t, l.neighbour, "address del 10.9.0.2/29 dev eth0")
	expect(t, "addresses, once the other host gave it up", l.add(t, "c2", second, sticky), "10.9.0.2/29 fd00:9::2/64")
}

func TestAddRefusesARequestedAddressThatAnotherHostHas(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	l.has(t, "10.9.0.4/29")
	const key = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;IP=10.9.0.4"
	out, err := l.run("ADD", "c1", sandbox, "", key)
	if err == nil || !strings.Contains(out, "10.9.0.4 is in use on the network by 02:00:00:00:0a:0a, and no other address can take its place (requested)") {
		t.Errorf("ADD: %s", out)
	}
}

// If others use up the pool, the search ends.
func TestAddOfAPoolThatIsInUseSaysByWhom(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	for i := 2; i <= 6; i++ {
		l.has(t, fmt.Sprintf("10.9.0.%d/29", i))
	}
	out, err := l.run("ADD", "c1", sandbox, "")
	if err == nil || !strings.Contains(out, `"code": 11`) || !strings.Contains(out, "10.9.0.6 by 02:00:00:00:0a:0a") || !strings.Contains(out, "no address is free") {
		t.Errorf("ADD: %s", out)
	}
}

// A macvlan and its parent do not hear each other. So relink looks up the node's own addresses.
func TestAddGivesNoAddressOfTheNodes(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	fresh.IP(t, "", "address add 10.9.0.2/29 dev lan0")
	mac := fresh.Run(t, "", "ip -br link show lan0 | tr -s ' ' | cut -d ' ' -f 3")
	expect(t, "addresses", l.add(t, "c1", sandbox, ""), "10.9.0.3/29 fd00:9::2/64")
	expect(t, "leases", l.leases(t), "10.9.0.2 quarantined in use by "+mac+", the node's lan0\n10.9.0.3 held\nfd00:9::2 held")
}

// The pod's earlier sandbox still has the address and answers for it.
func TestAddTakesOverWhatTheSandboxBeforeAnswersFor(t *testing.T) {
	l, old, sandbox := newLAN(t), fresh.Sandbox(t), fresh.Sandbox(t)
	const sticky = `, "sticky": "pod"`
	expect(t, "addresses", l.add(t, "c1", old, sticky), "10.9.0.2/29 fd00:9::2/64")
	// The kernel's own duplicate detection would find the IPv6 address.
	fresh.IP(t, old, "-6 address flush dev eth0 scope global")
	expect(t, "addresses of the next sandbox", l.add(t, "c2", sandbox, sticky), "10.9.0.2/29 fd00:9::2/64")
	if out, err := l.run("DEL", "c1", old, sticky); err != nil {
		t.Fatal(out)
	}
	expect(t, "leases after the late DEL", l.leases(t), "10.9.0.2 held\nfd00:9::2 held")
}

// A checkpoint has the address of the earlier ADD, and a restore would use that address.
func TestRepeatedAddKeepsItsAddressOrFails(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	expect(t, "addresses", l.add(t, "c1", sandbox, ""), "10.9.0.2/29 fd00:9::2/64")
	fresh.IP(t, sandbox, "link del eth0") // As if its NIC were lost.
	l.has(t, "10.9.0.2/29")
	out, err := l.run("ADD", "c1", sandbox, "")
	if err == nil || !strings.Contains(out, `"code": 11`) || !strings.Contains(out, "10.9.0.2, which this attachment has by its checkpoint, is in use on the network by 02:00:00:00:0a:0a") {
		t.Errorf("ADD: %s", out)
	}
	expect(t, "leases", l.leases(t), "10.9.0.2 held\nfd00:9::2 held")
	fresh.IP(t, l.neighbour, "address del 10.9.0.2/29 dev eth0")
	expect(t, "addresses, once the other host gave it up", l.add(t, "c1", sandbox, ""), "10.9.0.2/29 fd00:9::2/64")
}

// The runtime owes a DEL: two sandboxes would have one address.
func TestAddOfAContainerThatHasAnotherSandboxIsRefused(t *testing.T) {
	l, old, sandbox := newLAN(t), fresh.Sandbox(t), fresh.Sandbox(t)
	expect(t, "addresses", l.add(t, "c1", old, ""), "10.9.0.2/29 fd00:9::2/64")
	fresh.IP(t, old, "-6 address flush dev eth0 scope global") // The kernel's own duplicate detection would find it.
	out, err := l.run("ADD", "c1", sandbox, "")
	if err == nil || !strings.Contains(out, `"code": 4`) || !strings.Contains(out, "the container has eth0 in "+old+": DEL takes it away") {
		t.Errorf("ADD: %s", out)
	}
	expect(t, "leases", l.leases(t), "10.9.0.2 held\nfd00:9::2 held")
	if out, err := l.run("DEL", "c1", sandbox, ""); err != nil {
		t.Fatal(out)
	}
	l.add(t, "c1", sandbox, "")
}

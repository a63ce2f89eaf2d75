package capture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// importNode is a host with a directory of the tool's files.
type importNode struct {
	*testnode.Node
	dir string
}

func newImportNode(t *testing.T) *importNode {
	t.Helper()
	return &importNode{testnode.New(t), t.TempDir()}
}

// attach gives the sandbox an interface in the way of the tool.
func attach(t *testing.T, netns string, last int) {
	t.Helper()
	fresh.IP(t, "", fmt.Sprintf("link add link lan0 name fix0 netns %s mtu 1500 type macvlan mode bridge", netns))
	fresh.Run(t, netns, fmt.Sprintf(`ip link set fix0 name eth0 address %s
		ip link set eth0 up
		ip addr add 10.9.0.%d/24 brd + dev eth0
		ip route add default via 10.9.0.1
		echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp`, mac(last), last))
}

func mac(last int) string { return fmt.Sprintf("02:42:0a:09:00:%02x", last) }

func fixID(last int) string { return fmt.Sprintf("%012d0000", last) }

// writeImportFile writes the tool's file for a sandbox, and returns its name.
func (n *importNode) writeImportFile(t *testing.T, netns string, last int) string {
	t.Helper()
	const format = `{"netns":%q,"podname":"web-%[2]d","sandbox":%[3]q,"ifname":"eth0","result":{
		"interfaces":[{"name":"eth0","mac":%[4]q,"sandbox":%[1]q}],
		"ips":[{"version":"4","interface":0,"address":"10.9.0.%[2]d/24","gateway":"10.9.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}}`
	name := fixID(last)[:12]
	n.writeFile(t, name, fmt.Sprintf(format, netns, last, fixID(last), mac(last)))
	return name
}

func (n *importNode) writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectImport runs an import and expects one outcome for each file: "name state reason". The reason may be only its
// beginning.
func (n *importNode) expectImport(t *testing.T, dryRun bool, want ...string) capture.InterfaceReport {
	t.Helper()
	report, err := capture.Import(t.Context(), capture.Options{Store: n.Store, DryRun: dryRun}, n.dir, capture.ParentSpec{Devices: []string{"bond4", "lan0"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, o := range report.Outcomes {
		line := fmt.Sprintf("%s %s %s", filepath.Base(o.File), o.State, o.Reason)
		if i < len(want) && strings.HasPrefix(line, want[i]) {
			line = want[i]
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	return report
}

// expectRestore runs a restore and expects count attachments, each in one of the states.
func (n *importNode) expectRestore(t *testing.T, count int, states ...change.State) {
	t.Helper()
	report, err := restore.Run(t.Context(), restore.Options{Store: n.Store, Wait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Outcomes) != count || !report.Complete() {
		t.Errorf("%+v", report)
	}
	for _, o := range report.Outcomes {
		if !slices.Contains(states, o.State) {
			t.Errorf("%s: %s: %s", o.Attachment, o.State, o.FullReason())
		}
	}
}

// state returns the interface without its index and its parent's.
func importState(t *testing.T, netns string) string {
	t.Helper()
	return fresh.Run(t, netns, `ip -d -o link show eth0 | sed 's/^[0-9]*: //; s/@if[0-9]*//; s/ link-netnsid [0-9]*//'
		ip -o -4 addr show eth0 | sed 's/^[0-9]*: //'; ip route; cat /proc/sys/net/ipv4/conf/eth0/proxy_arp`)
}

const (
	there             = "it has no checkpoint; eth0 is there and as the file says: remembered as it is"
	interfaceFromFile = "it has no checkpoint; eth0 is gone from the sandbox: remembered from the file, on lan0"
)

// One interface is imported while it exists, another when it is gone, among files that are useless. Both come back as
// they were.
func TestImportIsRestored(t *testing.T) {
	n, alive, late := newImportNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	attach(t, alive, 5)
	attach(t, late, 6)
	before := map[string]string{alive: importState(t, alive), late: importState(t, late)}
	first := n.writeImportFile(t, alive, 5)
	n.expectImport(t, true, first+" to capture "+there)
	if left := n.Records(t); len(left) > 0 {
		t.Errorf("a dry run wrote %v", left)
	}
	report := n.expectImport(t, false, first+" captured "+there)
	if o := report.Outcomes[0]; !report.Complete() || o.Interface.Link.Index == 0 {
		t.Errorf("%+v", o)
	}
	n.expectRestore(t, 1, restore.AsRecorded)

	n.LoseParent(t)
	second := n.writeImportFile(t, late, 6)
	n.writeFile(t, "000000000007", `{"netns":"/proc/1/ns/n`)
	n.writeFile(t, "000000000008", strings.Replace(`{"netns":"/run/netns/x","sandbox":"000000000008","ifname":"eth0","vlan":4}`, "x", "gone", 1))
	n.writeFile(t, ".000000000005.swp", "an editor's")
	if err := os.Mkdir(filepath.Join(n.dir, "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	report = n.expectImport(t, false,
		first+" kept it has a checkpoint", second+" captured "+interfaceFromFile,
		"000000000007 failed torn or no checkpoint of i40e_net_fix: unexpected EOF",
		`000000000008 failed torn or no checkpoint of i40e_net_fix: json: unknown field "vlan"`,
		"old failed no regular file, and so no checkpoint of i40e_net_fix: move it away")
	if report.Complete() {
		t.Errorf("%+v", report)
	}
	n.expectRestore(t, 2, restore.Restored)
	for netns, want := range before {
		if diff := cmp.Diff(want, importState(t, netns)); diff != "" {
			t.Error(diff)
		}
	}
	n.expectRestore(t, 2, restore.AsRecorded)
	for _, r := range n.Records(t) {
		if r.Writer != capture.ImportWriter || r.Attachment.Network != "unknown" || r.Interface.Settings["ipv4/proxy_arp"] != "1" || len(r.CNI.Result) == 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestImportOnAVLANThatIsMissing(t *testing.T) {
	n, netns := newImportNode(t), fresh.Sandbox(t)
	n.writeImportFile(t, netns, 5)
	report, err := capture.Import(t.Context(), capture.Options{Store: n.Store}, n.dir, capture.ParentSpec{Devices: []string{"lan0"}, VLAN: 3, MTU: 1400})
	if err != nil || !report.Complete() {
		t.Fatal(report, err)
	}
	i := n.Records(t)[0].Interface
	if len(i.Parents) != 2 || i.Parents[0].Name != "lan0.3" || i.Parents[0].VLAN.ID != 3 || i.Parents[1].Name != "lan0" || i.Link.MTU != 1400 {
		t.Errorf("%+v", i)
	}
}

func TestImportRefusesStrangers(t *testing.T) {
	n := newImportNode(t)
	other, instead, veth, empty := fresh.Sandbox(t), fresh.Sandbox(t), fresh.Sandbox(t), fresh.Sandbox(t)
	attach(t, other, 9)
	attach(t, instead, 8)
	fresh.Run(t, instead, "ip link set eth0 down; ip link set eth0 name net1")
	fresh.IP(t, "", "link add eth0 netns "+veth+" type veth peer name out0")
	t.Cleanup(func() { fresh.IP(t, "", "link del out0") })
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, netns := range []string{
		other, instead, veth, "/proc/self/ns/net", "/proc/thread-self/ns/net", "/run/netns/none", plain, fifo, empty, empty, "/proc/self/ns/mnt",
	} {
		n.writeImportFile(t, netns, 10+i)
	}
	old := n.writeImportFile(t, fresh.Sandbox(t), 30)
	if err := os.Chtimes(filepath.Join(n.dir, old), time.Time{}, time.Unix(1_500_000_000, 0)); err != nil {
		t.Fatal(err)
	}
	n.expectImport(t, false,
		"000000000010 refused the sandbox is a stranger's by now: what is there as eth0 is a macvlan, 02:42:0a:09:00:09 with [10.9.0.9/24]; the file says 02:42:0a:09:00:0a with [10.9.0.10/24]",
		"000000000011 refused eth0 is gone, and the sandbox has net1 (macvlan, 02:42:0a:09:00:08) instead: it is a stranger's by now",
		"000000000012 refused eth0 is gone, and the sandbox has eth0 (veth, ",
		"000000000013 refused netns /proc/self/ns/net: it is the host's own network namespace",
		"000000000014 refused netns /proc/thread-self/ns/net: it is the host's own network namespace",
		"000000000015 refused its sandbox is gone: /run/netns/none: no network namespace: it does not exist",
		"000000000016 refused its sandbox is gone: "+plain+": no network namespace: it is a plain file",
		"000000000017 refused "+fifo+": no network namespace: it is no file of the kernel's",
		"000000000018 refused eth0 is gone, and "+n.dir+"/000000000019 names the same namespace: only one of the files can be right",
		"000000000019 refused eth0 is gone, and "+n.dir+"/000000000018 names the same namespace: only one of the files can be right",
		"000000000020 refused its sandbox is gone: /proc/self/ns/mnt: no network namespace: it is a namespace of another type",
		"000000000030 refused eth0 is gone, and the file is of an earlier boot: so was its sandbox",
	)
	if left := n.Records(t); len(left) > 0 {
		t.Errorf("remembered: %v", left)
	}
}

// The number of a process proves nothing. A process that started after the file was written is a stranger's.
func TestImportByProcess(t *testing.T) {
	n, netns := newImportNode(t), fresh.Sandbox(t)
	cmd := exec.Command("nsenter", "--net="+netns, "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	want := fresh.Run(t, "", "stat -Lc %i "+netns)
	for deadline := time.Now().Add(10 * time.Second); fresh.Run(t, "", "stat -Lc %i "+path) != want && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	name := n.writeImportFile(t, path, 5)
	earlier := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(n.dir, name), earlier, earlier); err != nil {
		t.Fatal(err)
	}
	n.expectImport(t, false, name+" refused eth0 is gone, and the process at "+path+" started after the file was written: it is a stranger's")
	n.writeImportFile(t, path, 5)
	n.expectImport(t, false, name+" captured "+interfaceFromFile)
	n.expectRestore(t, 1, restore.Restored)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	n.expectImport(t, false, name+" refused its sandbox is gone: "+path)
}

func TestImportBesideCheckpoints(t *testing.T) {
	n, netns, another := newImportNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	attach(t, netns, 5)
	name := n.writeImportFile(t, netns, 5)
	n.expectImport(t, false, name+" captured "+there)

	// Another namespace has the same container ID.
	n.writeImportFile(t, another, 5)
	n.expectImport(t, false, name+" refused its name is that of a checkpoint of another namespace, "+netns)
	n.writeImportFile(t, netns, 5)
	if err := os.WriteFile(filepath.Join(n.Store.Dir(), fixID(5), "eth0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.expectImport(t, false, name+" refused its checkpoint cannot be read: ")
	if err := n.Store.Forget(fixID(5), "eth0"); err != nil {
		t.Fatal(err)
	}
	n.expectImport(t, false, name+" captured "+there)

	// A capture remembered the interface without knowing the container ID.
	r := n.Records(t)[0]
	if err := n.Store.Forget(fixID(5), "eth0"); err != nil {
		t.Fatal(err)
	}
	r.Attachment.ContainerID = checkpoint.UnnamedID(r.Namespace)
	if err := n.Store.Save(r); err != nil {
		t.Fatal(err)
	}
	n.expectImport(t, false, name+" kept it has a checkpoint")
	if all := n.Records(t); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestImportOfNothing(t *testing.T) {
	n := newImportNode(t)
	n.expectImport(t, false)
	n.dir = filepath.Join(n.dir, "none")
	if _, err := capture.Import(t.Context(), capture.Options{Store: n.Store}, n.dir, capture.ParentSpec{Devices: []string{"lan0"}}); err == nil {
		t.Error("no error of a directory that is missing")
	}
}

func TestImportTwiceAtOnce(t *testing.T) {
	n := newImportNode(t)
	const pods = 10
	for i := range pods {
		n.writeImportFile(t, fresh.Sandbox(t), 10+i)
	}
	counts := map[change.State]int{}
	reports := make(chan capture.InterfaceReport)
	for range 2 {
		go func() {
			report, err := capture.Import(t.Context(), capture.Options{Store: n.Store}, n.dir, capture.ParentSpec{Devices: []string{"lan0"}})
			if err != nil {
				t.Error(err)
			}
			reports <- report
		}()
	}
	for range 2 {
		for _, o := range (<-reports).Outcomes {
			counts[o.State]++
		}
	}
	if diff := cmp.Diff(map[change.State]int{capture.Captured: pods, change.Kept: pods}, counts); diff != "" {
		t.Error(diff)
	}
	n.expectRestore(t, pods, restore.Restored)
}

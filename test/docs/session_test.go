package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/vm"
)

// stage is what a document's blocks find in the test machine.
type stage struct {
	doc    string
	script string
	// instead has what stands for words of the document, as the machine has another driver.
	instead map[string]string
	// status is the exit status of commands that fail as the document says.
	status map[string]int
	// withSystemd makes systemd process 1 of the machine.
	withSystemd bool
}

const (
	// onBond is a node with both NICs in bond4, the rest of the network, and relink installed.
	onBond = "network; install_relink; bond\n"
	// atNIC is one with eth0 alone.
	atNIC = "network; install_relink\n"
)

// stages are the documents that have sessions, by the names of their subtests.
var stages = map[string]stage{
	"README":     {doc: "README.md", script: onBond + "pod web-0\n", instead: map[string]string{"i40e": "e1000e"}, withSystemd: true},
	"runbook":    {doc: "docs/runbook.md", script: onBond + "pod web-0; pod web-1; pod db-0\n", instead: map[string]string{"i40e": "e1000e"}},
	"containerd": {doc: "docs/install/containerd.md", script: onBond + "pod web-0\n"},
	"crio":       {doc: "docs/install/crio.md", script: onBond + "pod web-0\n"},
	"k3s": {doc: "docs/install/k3s.md", script: onBond + `pod web-0
mkdir -p /var/lib/rancher/k3s/data/cni /var/lib/rancher/k3s/agent/etc/cni/net.d
ln -s "$BIN"/relink-* /var/lib/rancher/k3s/data/cni
cp docs/examples/10-vlan3.conflist /var/lib/rancher/k3s/agent/etc/cni/net.d
`},
	"rke2": {doc: "docs/install/rke2.md", script: onBond + `pod web-0
cp docs/examples/10-vlan3.conflist /etc/cni/net.d
`},
	"multus": {doc: "docs/install/multus.md", script: onBond + "CNI_IFNAME=net1 pod web-0\n"},
	"kubevirt": {doc: "docs/install/kubevirt.md", script: onBond + `vm=virt-launcher-vm-0-x7k2p
CNI_IFNAME=net1 pod $vm
ip -n $vm addr flush dev net1 scope global
ip -n $vm link set net1 down
ip -n $vm link set net1 name net1-nic
ip -n $vm link set net1-nic address 02:00:00:00:0b:01
ip -n $vm link add k6t-net1 type bridge
ip -n $vm link set k6t-net1 address 02:00:00:00:0b:01 up
ip -n $vm link set net1-nic master k6t-net1 up
`, status: map[string]int{"relink check": 1}},
	"bare-node": {doc: "docs/install/bare-node.md", script: atNIC},
	"commands": {doc: "docs/commands.md", script: onBond + changed, status: map[string]int{
		"relink status": 1, "relink check": 1, "relink restore --dry-run": 1, "relink validate /etc/cni/net.d": 1,
	}},
}

// changed is a node on which each pod has something else: db-0 was changed, the interface of web-1 was deleted, old-0 is gone, job-0 was
// attached by a stock plugin, and the driver was reloaded under all of them.
const changed = `pod db-0; pod web-0; pod web-1; pod old-0
ip netns add job-0
mkdir -p /tmp/stock
cat >/tmp/stock/lan.conflist <<'JSON'
{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "macvlan", "master": "bond4.3", "ipam": {"type": "host-local", "subnet": "10.8.0.0/24"}}]}
JSON
CNI_PATH=$BIN NETCONFPATH=/tmp/stock CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=job-0" cnitool add lan /run/netns/job-0 >/dev/null
ip netns del old-0
ip -n db-0 link set eth0 mtu 1400
ip -n db-0 route del default
ip -n web-1 link del eth0
modprobe -r e1000e
modprobe e1000e
cat >/etc/cni/net.d/10-lan.conflist <<'JSON'
{"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "relink-macvlan", "master": "bond4", "vlna": 3, "mtu": "1400",
  "ipam": {"type": "relink-ipam", "subnet": "10.5.0.0/24"}}]}
JSON
mkdir -p /tmp/host-local
printf '4f1c2ab0d6e91\r\neth0' >/tmp/host-local/10.9.0.2
`

// TestSessions runs the sessions of each document in a machine, from its first block to its last.
func TestSessions(t *testing.T) {
	for _, e := range entries {
		if e.check == session || e.check == table {
			if !slices.ContainsFunc(names(), func(name string) bool { return stages[name].doc == e.doc }) {
				t.Errorf("%s has a session and no stage", e.doc)
			}
		}
	}
	if !vm.InGuest() {
		vm.Deal(t, names())
		return
	}
	for name, s := range stages {
		t.Run(name, func(t *testing.T) { perform(t, s) })
	}
}

// names are those of the stages, in their order.
func names() []string {
	var all []string
	for name := range stages {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// step is a command and what it prints.
type step struct {
	block   block
	command string
	shows   string
	// loose is a step whose output is not shown, or of which only the header counts.
	loose, header bool
}

// steps are the commands of a block of type console, each line that begins with "# ", with the lines that follow.
func steps(b block) []step {
	var all []step
	for line := range strings.Lines(b.text) {
		if command, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, step{block: b, command: strings.TrimSpace(command)})
		} else if len(all) > 0 {
			all[len(all)-1].shows += line
		}
	}
	return all
}

// sessionOf returns all steps of a document that run.
func sessionOf(doc document) []step {
	var all []step
	for _, b := range doc.blocks {
		e, _ := find(b)
		switch {
		case e.check == table:
			all = append(all, step{block: b, command: e.with, shows: b.first(), header: true})
		case e.check == session && b.language == "console":
			all = append(all, steps(b)...)
		case e.check == session:
			all = append(all, step{block: b, command: strings.TrimSpace(b.text), loose: true})
		}
	}
	return all
}

// perform runs a document's steps in one shell and compares what each printed.
func perform(t *testing.T, s stage) {
	all := sessionOf(read(t, s.doc))
	if len(all) == 0 {
		t.Fatalf("%s has no session", s.doc)
	}
	if s.withSystemd {
		if err := vm.StartSystemd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	script := prelude + s.script + "set +e\ntrap 'failed=$?' ERR\n"
	for i, step := range all {
		command := step.command
		for word, with := range s.instead {
			command = strings.ReplaceAll(command, word, with)
		}
		script += fmt.Sprintf("failed=0\n{\n%s\n} >%[2]s/%[3]d.out 2>&1\necho $failed >%[2]s/%[3]d.status\n", command, dir, i)
	}
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BIN="+os.Getenv(binEnv), "PATH="+os.Getenv(binEnv)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the stage of %s: %v\n%s", s.doc, err, out)
	}
	for i, step := range all {
		compare(t, s, step, filepath.Join(dir, strconv.Itoa(i)))
	}
}

// compare compares what a step printed with what the document shows.
func compare(t *testing.T, s stage, step step, result string) {
	t.Helper()
	out, err := os.ReadFile(result + ".out")
	if err != nil {
		t.Errorf("%s:%d: %s did not run: %v", s.doc, step.block.line, step.command, err)
		return
	}
	status, err := os.ReadFile(result + ".status")
	if err != nil {
		t.Error(err)
		return
	}
	if want := s.status[step.command]; strings.TrimSpace(string(status)) != strconv.Itoa(want) {
		t.Errorf("%s:%d: %s: exit status %s, not %d\n%s", s.doc, step.block.line, step.command, strings.TrimSpace(string(status)), want, out)
	}
	got, want := comparable(string(out)), comparable(step.shows)
	if step.header && slices.Contains(strings.Split(got, "\n"), want) {
		return
	}
	if !step.loose && got != want {
		t.Errorf("%s:%d: %s prints\n%s\nthe document shows\n%s\n(both without times, IDs and MACs)", s.doc, step.block.line, step.command, got, want)
	}
}

// differing is what differs from run to run, and what stands for it in a comparison.
var differing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^waiting: .*\n`), ""},
	{regexp.MustCompile(`(?m)^Commit: .*\n`), ""}, // A program has it only if Go has read the repository at its build.
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "WHEN"},
	{regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`), "MAC"},
	{regexp.MustCompile(`\bcnitool-[0-9a-f]+`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "WHEN"},
	{regexp.MustCompile(`\binode \d+, cookie \d+`), "IDENTITY"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|s|m|h|d))+\b`), "TIME"},
	// How long a dry run looked for devices depends on how busy the machine is.
	{regexp.MustCompile(`, TIME of it waiting for devices and carrier`), ""},
	{regexp.MustCompile(`\b(relink: +v1\.0\.0|relink: +development|Go: +go[\d.]+|Kernel: +[\d.]+[\w.-]*)`), "VERSION"},
	{regexp.MustCompile(`\b\d+\.\d{3}\b`), "NUMBER"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
}

// comparable is a text without what differs from run to run.
func comparable(text string) string {
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.with)
	}
	return strings.TrimSpace(text)
}

// TestComparable shows that only what differs from run to run is passed over.
func TestComparable(t *testing.T) {
	const text = "waiting: bond4 has no carrier\nshop/web-0  cnitool-aff1b  ba:09:75:f6:24:84 10.3.0.2/24 2026-03-01T11:02:19Z \n1 restored in 2.44s, 760ms of it\nrtt 0.512/1.204\n"
	const want = "shop/web-0 ID MAC 10.3.0.2/24 WHEN\n1 restored in TIME, TIME of it\nrtt NUMBER/NUMBER"
	if got := comparable(text); got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// prelude makes the machine as after its boot, and has the words of the stages.
const prelude = `
for name in $(ip netns list | awk '{ print $1 }'); do
	[ "$name" = wire ] || ip netns del "$name"
done
rm -rf /run/relink /var/lib/cni /var/lib/rancher /etc/cni /tmp/host-local /tmp/stock
modprobe -r e1000e
for device in $(ls /sys/class/net); do ip link del "$device" 2>/dev/null || true; done
ip -n wire link del wire0.3 2>/dev/null || true
modprobe e1000e

await_carrier() {
	local carrier=
	for _ in $(seq 300); do
		{ read -r carrier <"/sys/class/net/$1/carrier"; } 2>/dev/null || true
		if [ "$carrier" = 1 ]; then return; fi
		sleep 0.2
	done
	echo "no carrier on $1"
	exit 1
}
# The rest of the network: a gateway on VLAN 3.
network() {
	ip -n wire link add link wire0 name wire0.3 type vlan id 3
	ip -n wire link set wire0.3 up
	ip -n wire addr add 10.3.0.1/24 dev wire0.3
	ip -n wire addr add fd00:3::1/64 dev wire0.3 nodad
}
# A link is enough: the emulated processor would translate the code of each copy anew.
install_relink() {
	mkdir -p /opt/cni/bin /etc/cni/net.d
	ln -sf "$BIN"/relink-* /opt/cni/bin
	ln -sf "$BIN/relink" /usr/local/sbin
}
bond() {
	ip link add bond4 type bond mode active-backup miimon 100
	ip link set eth0 master bond4
	ip link set eth1 master bond4
	ip link set bond4 up
	await_carrier bond4
}
# pod attaches a pod of the namespace shop, as a runtime does.
pod() {
	ip netns add "$1"
	ip -n "$1" link set lo up
	CNI_PATH=$BIN NETCONFPATH=docs/examples CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=$1" cnitool add vlan3 "/run/netns/$1" >/dev/null
}
`

package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

// stage is what the blocks of documents find in the test machine.
type stage struct {
	docs   []string
	script string
	// instead has what stands for words of the document, as the machine has another driver.
	instead map[string]string
	// status is the exit status of commands that fail as the document says.
	status map[string]int
	// withSystemd makes systemd process 1 of the machine.
	withSystemd bool
}

// stages are the documents that have sessions, in the order in which they run. The first has no bond, and after the last, systemd runs.
var stages = []stage{
	{docs: []string{"docs/install/bare-node.md"}},
	{docs: []string{"docs/install/rke2.md", "docs/install/k3s.md", "docs/install/containerd.md", "docs/install/crio.md", "docs/install/multus.md"}, script: `bond; pod web-0
cp docs/examples/10-vlan3.conflist /etc/cni/net.d
mkdir -p /var/lib/rancher/k3s/data/cni /var/lib/rancher/k3s/agent/etc/cni/net.d
ln -s "$BIN"/relink-* /var/lib/rancher/k3s/data/cni
cp docs/examples/10-vlan3.conflist /var/lib/rancher/k3s/agent/etc/cni/net.d
`},
	{docs: []string{"docs/install/kubevirt.md"}, script: `bond
vm=virt-launcher-vm-0-x7k2p
CNI_IFNAME=net1 pod $vm
ip -n $vm -batch - <<END
addr flush dev net1 scope global
link set net1 down
link set net1 name net1-nic
link set net1-nic address 02:00:00:00:0b:01
link add k6t-net1 type bridge
link set k6t-net1 address 02:00:00:00:0b:01 up
link set net1-nic master k6t-net1 up
END
`, status: map[string]int{"relink check": 1}},
	{docs: []string{"docs/commands.md"}, script: changed, status: map[string]int{
		"relink status": 1, "relink check": 1, "relink validate /etc/cni/net.d": 1,
	}},
	{docs: []string{"docs/runbook.md"}, script: "bond; pod web-0; pod web-1; pod db-0\n", instead: map[string]string{"i40e": "e1000e"}},
	{docs: []string{"README.md"}, script: "bond; pod web-0\n", instead: map[string]string{"i40e": "e1000e"}, withSystemd: true},
}

// changed is a node on which each pod has something else: db-0 was changed, the interface of web-1 was deleted, old-0 is gone, job-0 was
// attached by a stock plugin, and the driver was reloaded under all of them.
const changed = `bond; pod db-0; pod web-0; pod web-1; pod old-0
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

// TestSessions runs the sessions of each document, from its first block to its last, all in one machine.
func TestSessions(t *testing.T) {
	for _, e := range entries {
		if e.check == session || e.check == table {
			if !slices.ContainsFunc(stages, func(s stage) bool { return slices.Contains(s.docs, e.doc) }) {
				t.Errorf("%s has a session and no stage", e.doc)
			}
		}
	}
	machine, err := vm.Open(t.Context(), vm.Config{Processors: 1, TimeLimit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	for _, s := range stages {
		var names []string
		for _, doc := range s.docs {
			names = append(names, strings.TrimSuffix(filepath.Base(doc), ".md"))
		}
		t.Run(strings.Join(names, ","), func(t *testing.T) { perform(t, machine, s) })
	}
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

// mark comes after what a step prints, and after its exit status.
const mark = "\x1e"

// perform runs the steps of a stage's documents in one shell and compares what each printed.
func perform(t *testing.T, machine *vm.Session, s stage) {
	var all []step
	for _, doc := range s.docs {
		steps := sessionOf(read(t, doc))
		if len(steps) == 0 {
			t.Fatalf("%s has no session", doc)
		}
		all = append(all, steps...)
	}
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	run := func(command []string) (string, int) {
		out, code, err := machine.Run(t.Context(), vm.Config{Command: command, Env: []string{"BIN=" + bin}, Dir: dir})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out, code
	}
	if s.withSystemd {
		if out, code := run(vm.SystemdCommand()); code != 0 {
			t.Fatalf("systemd does not start: exit status %d\n%s", code, out)
		}
	}
	script := prelude + s.script + "set +e\ntrap 'failed=$?' ERR\nprintf '" + mark + "'\n"
	for _, step := range all {
		command := step.command
		for word, with := range s.instead {
			command = strings.ReplaceAll(command, word, with)
		}
		script += "failed=0\n" + command + "\nprintf '" + mark + "%d" + mark + "' $failed\n"
	}
	out, code := run([]string{"bash", "-euc", script})
	parts := strings.Split(out, mark)
	if code != 0 || len(parts) != 2+2*len(all) {
		t.Fatalf("the stage of %s: exit status %d\n%s", s.docs, code, out)
	}
	for i, step := range all {
		compare(t, s, step, parts[1+2*i], parts[2+2*i])
	}
}

// compare compares what a step printed with what the document shows.
func compare(t *testing.T, s stage, step step, out, status string) {
	t.Helper()
	if want := strconv.Itoa(s.status[step.command]); status != want {
		t.Errorf("%s:%d: %s: exit status %s, not %s\n%s", step.block.doc, step.block.line, step.command, status, want, out)
	}
	got, want := comparable(out), comparable(step.shows)
	if step.header && slices.Contains(strings.Split(got, "\n"), want) {
		return
	}
	if !step.loose && got != want {
		t.Errorf("%s:%d: %s prints\n%s\nthe document shows\n%s\n(both without times, IDs and MACs)", step.block.doc, step.block.line, step.command, got, want)
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

// prelude leaves nothing of the stage before but the bond, whose driver needs seconds for a carrier. It makes the rest of the network,
// which is a gateway on VLAN 3, installs relink, and has the words of the stages.
const prelude = `
PATH=$BIN:$PATH
for name in $(ip netns list | awk '{ print $1 }'); do
	[ "$name" = wire ] || ip netns del "$name"
done
for device in $(ls /sys/class/net); do
	case $device in
	lo | eth[01] | bond4 | bonding_masters) ;;
	*) ip link del "$device" 2>/dev/null || true ;; # It may have gone with the one before.
	esac
done
rm -rf /run/relink /var/lib/cni /var/lib/rancher /etc/cni /tmp/host-local /tmp/stock
ip -n wire link show wire0.3 >/dev/null 2>&1 || ip -n wire -batch - <<END
link add link wire0 name wire0.3 type vlan id 3
link set wire0.3 up
addr add 10.3.0.1/24 dev wire0.3
addr add fd00:3::1/64 dev wire0.3 nodad
END
mkdir -p /opt/cni/bin /etc/cni/net.d
# A link is enough: the emulated processor would translate the code of each copy anew.
ln -sf "$BIN"/relink-* /opt/cni/bin
ln -sf "$BIN/relink" /usr/local/sbin

# bond puts both NICs into bond4, unless they are there already.
bond() {
	if [ "$(cat /sys/class/net/bond4/bonding/slaves 2>/dev/null)" != "eth0 eth1" ]; then
		ip link del bond4 2>/dev/null || true
		ip -batch - <<-END
			link set eth0 down
			link add bond4 type bond mode active-backup miimon 100
			link set eth0 master bond4
			link set eth1 master bond4
			link set bond4 up
		END
	fi
	for _ in $(seq 300); do
		[ "$(cat /sys/class/net/bond4/carrier)" != 1 ] || return 0
		sleep 0.2
	done
	echo "no carrier on bond4"
	exit 1
}
# pod attaches a pod of the namespace shop, as a runtime does.
pod() {
	ip netns add "$1"
	ip -n "$1" link set lo up
	CNI_PATH=$BIN NETCONFPATH=docs/examples CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=$1" cnitool add vlan3 "/run/netns/$1" >/dev/null
}
`

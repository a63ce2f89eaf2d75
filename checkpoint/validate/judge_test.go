package validate

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/netstate"
)

// readChains takes the networks apart.
func readChains(networks []Network) ([]chain, []ConfigFinding) {
	var c collected
	for _, n := range networks {
		c.readChain(n)
	}
	return c.chains, c.findings
}

func judgeRanges(chains []chain) []ConfigFinding {
	c := collected{chains: chains}
	c.judgeRanges()
	return c.findings
}

func judgeNode(chains []chain, node Node) []ConfigFinding {
	c := collected{chains: chains}
	c.judgeNode(node)
	return c.findings
}

// findingsOf returns the findings for one file, one on each line.
func findingsOf(t *testing.T, file, content string) []string {
	t.Helper()
	var c collected
	c.read(file, []byte(content))
	for _, n := range c.networks {
		c.readChain(n)
	}
	c.judgeRanges()
	return lines(c.findings)
}

func lines(findings []ConfigFinding) []string {
	var all []string
	for _, f := range findings {
		all = append(all, f.String())
	}
	return all
}

// list returns a conflist of these plugins.
func list(plugins string) string {
	return `{"cniVersion": "1.1.0", "name": "pods", "plugins": [` + plugins + `]}`
}

const good = `{"type": "relink-macvlan", "master": "bond4", "ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24"}}`

func TestWhatIsWrongInAFile(t *testing.T) {
	const first = "10.conflist: plugins[0] relink-macvlan: "
	for name, test := range map[string]struct {
		file, content string
		want          []string
	}{
		"nothing":           {"10.conflist", list(good), nil},
		"nothing, a conf":   {"10.conf", `{"cniVersion": "1.1.0", "name": "pods", "type": "relink-vlan", "master": "eth0", "vlanId": 3}`, nil},
		"another's plugins": {"10.conflist", list(`{"type": "bridge", "bridge": "cni0", "ipam": {"type": "whereabouts", "range": "x"}}`), nil},
		"all that is wrong with one plugin": {"10.conflist", list(`{"type": "relink-macvlan", "vlna": 3, "mtu": "1500", "mode": "brigde", "mac": "x", "weird": 1, "cni.dev/x": 1,
			"ipam": {"type": "relink-ipam", "subnet": "10.3.0.7/24", "sticky": "yes", "quarantine": "1", "colour": "red", "exclude": ["a", "b"]}}`), []string{
			first + `error: invalid configuration key "vlna": no such key of relink-macvlan; did you mean "vlan"?`,
			first + `error: invalid "mtu": "1500": must be a whole number, without quotation marks`,
			first + `error: invalid "mode": "brigde": must be one of bridge, private, vepa, passthru`,
			first + `error: invalid "mac": "x": must be the MAC address of one device: 6 bytes such as 02:00:00:00:00:01, neither zero nor multicast`,
			first + `warning: unknown configuration key "weird": relink-macvlan does not read it: remove it if nobody else does`,
			first + `error: invalid "ipam.sticky": "yes": must be none, pod or owner`,
			first + `error: invalid "ipam.quarantine": "1": must be a duration such as 60s, or 0s for none`,
			first + `error: invalid "ipam.exclude[0]": "a": must be an address, a network such as 10.3.0.0/28, or a span such as 10.3.0.5-10.3.0.9`,
			first + `error: invalid "ipam.exclude[1]": "b": must be an address, a network such as 10.3.0.0/28, or a span such as 10.3.0.5-10.3.0.9`,
			first + `error: invalid "ipam.subnet": "10.3.0.7/24": has bits set beyond its length: the network is 10.3.0.0/24`,
			first + `warning: unknown configuration key "ipam.colour": relink-ipam does not read it: remove it if nobody else does`,
		}},
		"several plugins": {"10.conflist", list(`{"type": "relink-macvlan", "mtu": 1}, {"type": "tuning"}, {"type": "relink-checkpoint", "checkpointDir": "x"}`), []string{
			first + `error: invalid "mtu": 1: must be 0 (the master's MTU) or at least 68`,
			`10.conflist: plugins[2] relink-checkpoint: error: invalid "checkpointDir": "x": must be an absolute path`,
		}},
		"a list without relink-checkpoint": {"10.conflist", list(good + `, {"type": "tuning"}`), []string{
			first + `warning: tuning comes later: what it changes is not remembered: put relink-checkpoint last`,
		}},
		"relink-checkpoint not last": {"10.conflist", list(`{"type": "macvlan"}, {"type": "relink-checkpoint"}, {"type": "tuning"}`), []string{
			`10.conflist: plugins[1] relink-checkpoint: warning: tuning comes later: what it changes is not remembered: put relink-checkpoint last`,
		}},
		"relink-checkpoint first": {"10.conflist", list(`{"type": "relink-checkpoint"}, {"type": "macvlan"}`), []string{
			`10.conflist: plugins[0] relink-checkpoint: error: invalid "prevResult": missing: relink-checkpoint must come after an interface plugin in a list`,
		}},
		"two interface plugins": {"10.conflist", list(good + `, {"type": "relink-vlan", "master": "eth0", "vlanId": 3}`), []string{
			first + `warning: relink-vlan comes later: what it changes is not remembered: put relink-checkpoint last`,
			`10.conflist: plugins[1] relink-vlan: error: invalid "type": "relink-vlan": relink-macvlan makes the pod's interface already: a list has one interface plugin`,
		}},
		"a misspelt plugin": {"10.conflist", list(`{"type": "relink-mcvlan"}`), []string{
			`10.conflist: plugins[0] relink-mcvlan: error: invalid "type": "relink-mcvlan": no such plugin of relink; did you mean "relink-macvlan"?`,
		}},
		"an IPAM plugin in the wrong place": {"10.conflist", list(`{"type": "relink-ipam"}`), []string{
			`10.conflist: plugins[0] relink-ipam: error: invalid "type": "relink-ipam": must be an interface plugin such as relink-macvlan; write relink-ipam in "ipam"`,
		}},
		"no type": {"10.conflist", list(`{"master": "eth0"}`), []string{
			`10.conflist: plugins[0]: error: error parsing configuration: missing 'type'`,
		}},
		"relink-ipam below another's plugin": {"10.conflist", list(`{"type": "macvlan", "Master": "eth0", "RuntimeConfig": {}, "ipam": {"type": "relink-ipam", "subnte": "x", "conflictDetection": true}}`), []string{
			`10.conflist: plugins[0] macvlan: error: invalid configuration key "RuntimeConfig": case counts in keys; write "runtimeConfig"`,
			`10.conflist: plugins[0] macvlan: error: invalid configuration key "ipam.subnte": no such key of relink-ipam; did you mean "subnet"?`,
			`10.conflist: plugins[0] macvlan: error: invalid "ipam.ranges": missing: must have a range of addresses to give, such as [[{"subnet": "10.3.0.0/24"}]]`,
			`10.conflist: plugins[0] macvlan: warning: "ipam.conflictDetection": macvlan does not probe for addresses: only relink-macvlan and relink-vlan do`,
		}},
		"a misspelt relink-ipam below another's plugin": {"10.conflist", list(`{"type": "macvlan", "ipam": {"type": "relink-ipan"}}`), []string{
			`10.conflist: plugins[0] macvlan: error: invalid "ipam.type": "relink-ipan": no such plugin of relink; did you mean "relink-ipam"?`,
		}},
		"the list itself": {"10.conflist", `{"cniVersion": "9.9", "Name": "x", "plugin": [], "colour": 1}`, []string{
			`10.conflist: error: invalid "cniVersion": "9.9": must be one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`,
			`10.conflist: error: invalid "plugins": missing: must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`,
			`10.conflist: warning: unknown configuration key "colour": a list of plugins does not read it: remove it if nobody else does`,
			`10.conflist: warning: invalid configuration key "Name": case counts in keys; write "name"`,
			`10.conflist: warning: invalid configuration key "plugin": no such key of a list of plugins; did you mean "plugins"?`,
		}},
		"a plugin's keys beside the plugins": {"10.conflist", strings.Replace(list(good), `"plugins"`, `"vlan": 3, "hostAccess": true, "plugins"`, 1), []string{
			`10.conflist: error: invalid configuration key "hostAccess": no plugin gets it: write it in the plugin's object in "plugins"`,
			`10.conflist: error: invalid configuration key "vlan": no plugin gets it: write it in the plugin's object in "plugins"`,
		}},
		"names that no network has":    {"10.conflist", strings.Replace(list(good), "pods", "shop/pods", 1), []string{`10.conflist: error: invalid "name": "shop/pods": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`}},
		"a list in *.conf":             {"10.conf", list(good), []string{`10.conf: error: is a list of plugins: runtimes read that in *.conflist: rename the file`}},
		"one plugin in *.conflist":     {"10.conflist", `{"name": "pods", "type": "relink-macvlan"}`, []string{`10.conflist: error: is one plugin: put it in "plugins": [ ], or name the file *.conf`}},
		"both":                         {"10.conflist", `{"name": "pods", "type": "x", "plugins": [` + good + `]}`, []string{`10.conflist: error: has "type" and "plugins": keep "plugins", with one object for each plugin`, `10.conflist: warning: unknown configuration key "type": a list of plugins does not read it: remove it if nobody else does`}},
		"a plugin that is none":        {"10.conflist", list(`"relink-macvlan"`), []string{`10.conflist: error: invalid "plugins[0]": "relink-macvlan": must be an object: put its keys in { }`}},
		"a key twice":                  {"10.conflist", list(`{"type": "relink-macvlan", "mtu": 1400, "mtu": 1500}`), []string{`10.conflist: warning: configuration key "plugins[0].mtu" is there twice: the last one counts: keep one`}},
		"no JSON":                      {"10.conflist", `{"name": }`, []string{`10.conflist: error: network configuration: is no JSON from "}" in line 1 on: a comma, a quotation mark or a bracket is missing or too many`}},
		"no network, but another kind": {"x.yaml", "kind: Deployment\nspec: {}\n", nil},
		"no YAML":                      {"x.yaml", "kind: [", []string{`x.yaml: error: is no YAML: yaml: line 1: did not find expected node content: nothing from there on was read`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, findingsOf(t, test.file, test.content)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefinitionsOfMultus(t *testing.T) {
	definition := func(name, config string) string {
		return "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: " + name + "\n  namespace: shop\nspec:\n  config: " + config + "\n"
	}
	const one = `'{"cniVersion": "1.1.0", "type": "relink-macvlan", "master": "eth0", "vlan": "3"}'`
	const wrong = ` relink-macvlan: error: invalid "vlan": "3": must be a whole number, without quotation marks`
	for name, test := range map[string]struct {
		file, content string
		want          []string
	}{
		"one, its name that of the object": {"x.yaml", definition("lan", one), []string{"x.yaml: shop/lan," + wrong}},
		"two documents": {"x.yaml", "---\n# first\n" + definition("lan", one) + "---\nkind: Pod\n--- # third\n" + definition("wan", "|\n    "+list(`{"type": "relink-vlan"}`)), []string{
			"x.yaml: document 1, shop/lan," + wrong,
			`x.yaml: document 3, shop/wan, plugins[0] relink-vlan: error: invalid "master": missing: must name the device to put the VLAN on`,
			`x.yaml: document 3, shop/wan, plugins[0] relink-vlan: error: invalid "vlanId": missing: must be the VLAN's ID, between 1 and 4094`,
		}},
		"a list in JSON": {"x.json", `{"kind": "List", "items": [{"kind": "NetworkAttachmentDefinition", "metadata": {"name": "lan"}, "spec": {"config": "{\"type\": \"relink-macvlan\", \"vlna\": 3}"}}]}`, []string{
			`x.json: item 1, lan, relink-macvlan: error: invalid configuration key "vlna": no such key of relink-macvlan; did you mean "vlan"?`,
		}},
		"an object instead of a string": {"x.yaml", definition("lan", `{type: relink-macvlan}`), []string{
			`x.yaml: shop/lan: error: invalid "spec.config": {"type":"relink-macvlan"}: must be a string with JSON in it: in YAML, write config: | or put it in quotation marks`,
		}},
		"no JSON in it": {"x.yaml", definition("lan", `'{"type": }'`), []string{
			`x.yaml: shop/lan: error: spec.config: network configuration: is no JSON from "}" in line 1 on: a comma, a quotation mark or a bracket is missing or too many`,
		}},
		"nothing in it": {"x.yaml", definition("lan", `''`), []string{
			`x.yaml: shop/lan: warning: invalid "spec.config": missing: Multus takes the file of the network "lan" in its configuration directory: validate that`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, findingsOf(t, test.file, test.content)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworksThatGiveTheSameAddresses(t *testing.T) {
	network := func(name, kind, subnet string) Network {
		return Network{File: name + ".conf", Config: []byte(`{"name": "` + name + `", "type": "relink-macvlan", "ipam": {"type": "` + kind + `", "subnet": "` + subnet + `"}}`)}
	}
	for name, test := range map[string]struct {
		networks []Network
		want     []string
	}{
		"apart":         {[]Network{network("a", "relink-ipam", "10.3.0.0/24"), network("b", "relink-ipam", "10.4.0.0/24")}, nil},
		"one name":      {[]Network{network("a", "relink-ipam", "10.3.0.0/24"), network("a", "relink-ipam", "10.3.0.0/24")}, nil},
		"one store":     {[]Network{network("a", "relink-ipam", "10.3.0.0/24"), network("b", `relink-ipam", "store": "a`, "10.3.0.0/24")}, nil},
		"others' types": {[]Network{network("a", "whereabouts", "10.3.0.0/24"), network("b", "relink-ipam", "10.3.0.0/24")}, nil},
		"the same": {[]Network{network("a", "host-local", "10.3.0.0/16"), network("b", "relink-ipam", "10.3.9.0/24")}, []string{
			`b.conf: relink-macvlan: warning: addresses of 10.3.9.1-10.3.9.254 are given by the network "a" (a.conf) too: on one VLAN two pods would get the same address: split the range, or give both networks one "ipam.store"`,
		}},
	} {
		chains, _ := readChains(test.networks)
		if diff := cmp.Diff(test.want, lines(judgeRanges(chains))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestANodeLacksAFileThatIsRead(t *testing.T) {
	chains, wrong := readChains([]Network{{File: "10.conf", Config: []byte(`{"name": "pods", "type": "relink-macvlan", "master": "bond4",
		"ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24", "resolvConf": "/etc/pods.resolv"}}`)}})
	if len(wrong) > 0 {
		t.Fatal(lines(wrong))
	}
	file := need{key: fileKey, value: "/etc/pods.resolv"}
	for why, want := range map[string][]string{
		"": nil,
		"must be a file that can be read: no such file or directory": {`10.conf: relink-macvlan: error: invalid "ipam.resolvConf": "/etc/pods.resolv": must be a file that can be read: no such file or directory`},
	} {
		if diff := cmp.Diff(want, lines(judgeNode(chains, Node{Problems: map[need]string{file: why}}))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", why, diff)
		}
	}
}

func TestANetworkThatNeedsTheAPI(t *testing.T) {
	for keys, key := range map[string]string{`"sticky": "owner"`: `"sticky": "owner"`, `"static": {}`: `"static"`, `"sticky": "pod"`: ""} {
		chains, wrong := readChains([]Network{{File: "10.conf", Config: []byte(`{"name": "pods", "type": "relink-macvlan", "master": "bond4",
			"ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24", ` + keys + `}}`)}})
		if len(wrong) > 0 {
			t.Fatal(lines(wrong))
		}
		var want []string
		if key != "" {
			want = []string{"10.conf: relink-macvlan: warning: " + key + ": no pod starts on this network before relink-agent can ask the Kubernetes API: nobody listens"}
		}
		if diff := cmp.Diff(want, lines(judgeNode(chains, Node{Problems: map[need]string{{key: apiNeed, value: key}: "nobody listens"}}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", keys, diff)
		}
		if got := judgeNode(chains, Node{}); len(got) > 0 {
			t.Errorf("%s, with an agent: %v", keys, lines(got))
		}
	}
}

// Whether the agent can ask the API is known by its own answer.
func TestTheAgentIsAskedForTheAPI(t *testing.T) {
	t.Setenv(control.SocketEnv, filepath.Join(t.TempDir(), "none"))
	if why := probeNode(needing(need{key: apiNeed}), nil).Problems[need{key: apiNeed}]; !strings.HasPrefix(why, "no relink-agent runs on this node") {
		t.Errorf("no agent: %s", why)
	}
}

// A relative path has one error. No file below the directory of relink validate is meant.
func TestARelativeResolvConfIsNoFileOfTheNode(t *testing.T) {
	chains, wrong := readChains([]Network{{File: "10.conf", Config: []byte(`{"name": "pods", "type": "relink-macvlan", "master": "bond4",
		"ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24", "resolvConf": "resolv.conf"}}`)}})
	want := []string{`10.conf: relink-macvlan: error: invalid "ipam.resolvConf": "resolv.conf": must be an absolute path`}
	if diff := cmp.Diff(want, lines(wrong)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if needs := chains[0].plugins[0].needs; slices.ContainsFunc(needs, func(n need) bool { return n.key == fileKey }) {
		t.Errorf("needs %v", needs)
	}
}

// Both kinds of files are looked at on a real file system.
func TestLooksWhetherAFileCanBeRead(t *testing.T) {
	dir := t.TempDir()
	there, missing := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "missing")
	if err := os.WriteFile(there, []byte("nameserver 10.3.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(os.DevNull, link), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		there: "", missing: "no such file or directory", dir: dir + " is no regular file",
		os.DevNull: "", link: "", // An ADD reads an empty file.
		fifo: fifo + " is no regular file", "/dev/zero": "/dev/zero is no regular file", "/dev/ptmx": "/dev/ptmx is no regular file",
	} {
		if want != "" {
			want = "must be a file that can be read: " + want
		}
		n := need{key: fileKey, value: path}
		if got := probeNode(needing(n), nil).Problems[n]; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestWhatANodeLacks(t *testing.T) {
	chains, wrong := readChains([]Network{{File: "10.conf", Config: []byte(
		`{"name": "pods", "type": "relink-macvlan", "master": "bond4", "vlan": 3, "mtu": 9000, "checkpointDir": "/srv/x", "ipam": {"type": "host-lcoal"}}`)}})
	if len(wrong) > 0 {
		t.Fatal(lines(wrong))
	}
	lacking := map[need]string{
		{key: typeKey, value: "relink-macvlan"}: "is nowhere", {key: ipamKey, value: "host-lcoal"}: `is nowhere; did you mean "host-local"?`,
		{key: moduleNeed, value: "macvlan"}: "install it", {key: moduleNeed, value: "8021q"}: "install it",
		{key: checkpointsKey, value: "/srv/x"}: "no checkpoint can be written there: /srv: read-only file system",
	}
	if diff := cmp.Diff(slices.Collect(maps.Keys(lacking)), chains[0].plugins[0].needs, cmp.AllowUnexported(need{}), cmpopts.SortSlices(func(a, b need) bool { return a.key+a.value < b.key+b.value })); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	bond := netstate.LiveDevice{Device: netstate.Device{Name: "bond4", Kind: netstate.KindBond, MTU: 1500}, Index: 4}
	const at = "10.conf: relink-macvlan: error: "
	for name, test := range map[string]struct {
		node Node
		want []string
	}{
		"nothing that is known": {Node{}, nil},
		"nothing": {Node{
			Devices: netstate.Devices{{Device: netstate.Device{Name: "bond4", Kind: netstate.KindBond, MTU: 9000}, Index: 4}}, Problems: map[need]string{{key: checkpointsKey, value: "/srv/x"}: ""},
		}, nil},
		"everything": {Node{
			Devices: netstate.Devices{{Device: netstate.Device{Name: "eth0", MTU: 1500}, Index: 2}}, Problems: lacking,
			Unknown: []string{"the sky"},
		}, []string{
			at + `invalid "type": "relink-macvlan": is nowhere`,
			at + `invalid "ipam.type": "host-lcoal": is nowhere; did you mean "host-local"?`,
			at + `the kernel has no module macvlan: install it`,
			at + `the kernel has no module 8021q: install it`,
			at + `invalid "checkpointDir": "/srv/x": no checkpoint can be written there: /srv: read-only file system`,
			at + `invalid "master": "bond4": does not exist: name a device that is there`,
			`this node: warning: not looked at: the sky`,
		}},
		"an MTU": {Node{Devices: netstate.Devices{bond}}, []string{at + `invalid "mtu": 9000: must not be above 1500, the MTU of bond4`}},
	} {
		if diff := cmp.Diff(test.want, lines(judgeNode(chains, test.node))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

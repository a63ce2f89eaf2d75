package validate

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

// If libcni refuses a list, no runtime has the network. The report says so, in relink's words where it has some.
func TestReportsEachListThatLibcniRefuses(t *testing.T) {
	const plugins = `"plugins": [{"type": "x"}]`
	inPlugin := func(keys string) string { return `{"cniVersion": "1.1.0", "name": "a", "plugins": [{` + keys + `}]}` }
	inList := func(keys string) string { return `{"cniVersion": "1.1.0", "name": "a", ` + keys + `}` }
	const list = `must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`
	const aString, object = "must be a string: put it in quotation marks", "must be an object: put its keys in { }"
	const parsing = "error parsing configuration list: "
	const unmarshal = "error parsing configuration: json: cannot unmarshal "
	for config, want := range map[string]string{
		inList(plugins): "", inList(plugins + `, "disableCheck": true, "disableGC": "False"`): "",
		inList(plugins + `, "disableCheck": 5`):                                parsing + "invalid type float64 for disableCheck",
		inList(plugins + `, "disableGC": "maybe"`):                             parsing + `invalid value "maybe" for disableGC`,
		inList(plugins + `, "disableGC": null`):                                parsing + "invalid type <nil> for disableGC",
		inList(plugins + `, "loadOnlyInlinedPlugins": []`):                     parsing + "invalid type []interface {} for loadOnlyInlinedPlugins",
		inList(plugins + `, "cniVersions": ["1.0.0", "7.0.0"]`):                "",
		inList(plugins + `, "cniVersions": "1.0.0"`):                           parsing + "invalid type for cniVersions: []interface {}",
		inList(plugins + `, "cniVersions": [null]`):                            parsing + "invalid type for cniVersions index 0: <nil>",
		inList(plugins + `, "cniVersions": ["1.0.0", "x"]`):                    parsing + `invalid cniVersions entry x at index 1: failed to convert major version part "x": strconv.Atoi: parsing "x": invalid syntax`,
		`{"cniVersion": "x", "name": "a", "cniVersions": [], ` + plugins + `}`: `invalid "cniVersion": "x": must be one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`,
		`{"cniVersion": null, "name": "a", ` + plugins + `}`:                   parsing + "invalid cniVersion type <nil>",
		`{"cniVersion": 1, "name": "a", ` + plugins + `}`:                      `invalid "cniVersion": 1: ` + aString,
		`{"name": "a", ` + plugins + `}`:                                       "",
		`{"Name": "a", ` + plugins + `}`:                                       parsing + "no name",
		`{"name": null, ` + plugins + `}`:                                      `invalid "name": missing: must be the network's name`,
		inList(`"plugins": []`):                                                `invalid "plugins": missing: ` + list,
		inList(`"plugins": null`):                                              `invalid "plugins": missing: ` + list,
		inList(`"plugins": {}`):                                                `invalid "plugins": {}: must be a list: put it in [ ]`,
		inList(`"plugins": [null]`):                                            `invalid "plugins[0]": null: ` + object,
		inList(`"plugins": ["x"]`):                                             `invalid "plugins[0]": "x": ` + object,
		inPlugin(`"type": "x", "capabilities": {"mac": true}`):                 "",
		inPlugin(`"type": "x", "capabilities": {"mac": "true"}`):               unmarshal + "string into Go struct field PluginConf.capabilities of type bool",
		inPlugin(`"type": "x", "prevResult": 5`):                               unmarshal + "number into Go struct field PluginConf.prevResult of type map[string]interface {}",
		inPlugin(`"type": "x", "name": 5`):                                     unmarshal + "number into Go struct field PluginConf.name of type string",
		inPlugin(`"type": "x", "cniVersion": null`):                            "",
		inPlugin(`"type": "x", "ipam": {"type": 5}`):                           unmarshal + "number into Go struct field IPAM.ipam.type of type string",
		inPlugin(`"type": "x", "dns": {"search": "a"}`):                        unmarshal + "string into Go struct field DNS.dns.search of type []string",
		inPlugin(`"type": "x", "runtimeConfig": 5, "args": [], "y": 1`):        "",
		inPlugin(`"Type": "x"`):                                                "",
		inPlugin(`"type": 5`):                                                  unmarshal + "number into Go struct field PluginConf.type of type string",
		inPlugin(`"master": "eth0"`):                                           "error parsing configuration: missing 'type'",
	} {
		var got []string
		_, findings := readChains([]Network{{File: "10.conflist", Config: []byte(config)}})
		for _, f := range findings {
			if f.Severity == Error {
				got = append(got, f.Message)
			}
		}
		if diff := cmp.Diff(want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
		if _, err := libcni.ConfListFromBytes([]byte(config)); err != nil != (want != "") {
			t.Errorf("%s: libcni says %v, want %q", config, err, want)
		}
	}
}

// Each refusal is reported once, with its place.
func TestReportsWhatLibcniRefuses(t *testing.T) {
	for config, want := range map[string][]string{
		`{"cniVersion": "1.1.0", "name": "a", "disableGC": "maybe", "plugins": [{"type": "x", "capabilities": ["mac"], "name": 5}, {"master": "x"}]}`: {
			`10.conflist: error: error parsing configuration list: invalid value "maybe" for disableGC`,
			`10.conflist: plugins[0] x: error: error parsing configuration: json: cannot unmarshal array into Go struct field PluginConf.capabilities of type map[string]bool`,
			`10.conflist: plugins[1]: error: error parsing configuration: missing 'type'`,
		},
		`{"cniVersion": "1.1.0", "name": "a", "plugins": [null, {"type": "relink-macvlan", "prevResult": 5, "ipam": 5}]}`: {
			`10.conflist: error: invalid "plugins[0]": null: must be an object: put its keys in { }`,
			`10.conflist: plugins[1] relink-macvlan: error: invalid "ipam": 5: must be an object: put its keys in { }`,
		},
	} {
		got := findingsOf(t, "10.conflist", config)
		if diff := cmp.Diff(want, got, cmp.Transformer("sorted", sortedSet)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
}

func sortedSet(all []string) map[string]int {
	set := map[string]int{}
	for _, s := range all {
		set[s]++
	}
	return set
}

// A mistake that libcni corrects by itself is no error.
func TestWhatLibcniMendsIsNoError(t *testing.T) {
	for config, want := range map[string][]string{
		`{"cniVersion": "1.1.0", "name": "pods", "Name": "x", "plugins": [` + good + `]}`: {
			`10.conflist: warning: invalid configuration key "Name": case counts in keys; write "name"`,
		},
		list(strings.Replace(good, "{", `{"cniVersion": "0.2.0", "name": "my plugin!", `, 1)): nil,
		list(strings.Replace(good, "{", `{"mtu": "x", "mtu": 1500, `, 1)):                     {`10.conflist: warning: configuration key "plugins[0].mtu" is there twice: the last one counts: keep one`},
		list(strings.Replace(good, "{", `{"mtu": 1500, "mtu": "x", "mtu":"y" , `, 1)): {
			`10.conflist: warning: configuration key "plugins[0].mtu" is there twice: the last one counts: keep one`,
			`10.conflist: plugins[0] relink-macvlan: error: invalid "mtu": "y": must be a whole number, without quotation marks`,
		},
		strings.Replace(list(good), `"plugins"`, `"name": "b", "plugins"`, 1):                                                                           {`10.conflist: warning: configuration key "name" is there twice: the last one counts: keep one`},
		list(strings.Replace(good, "{", `{"mtu": 1.4e3, "vlan": 3.0, `, 1)):                                                                             nil,
		list(strings.Replace(good, "{", `{"_comment": "\ud800", `, 1)):                                                                                  nil,
		list(strings.Replace(good, "{", `{"mtu": 1.5, `, 1)):                                                                                            {`10.conflist: plugins[0] relink-macvlan: error: invalid "mtu": 1.5: must be a whole number`},
		list(strings.Replace(good, "{", "{\"_comment\": \"caf\xe9\", ", 1)):                                                                             {`10.conflist: warning: has bytes that are not UTF-8: the runtime replaces them: save the file as UTF-8`},
		list(strings.Replace(good, "{", `{"mtu": 1e999, `, 1)):                                                                                          {`10.conflist: error: invalid "plugins[0].mtu": 1e999: must be a number between -1.7e308 and 1.7e308`},
		list(`{"type": "relink-macvlan", "TYPE": "x", "master": "bond4"}`):                                                                              {`10.conflist: plugins[0] relink-macvlan: error: invalid configuration key "TYPE": case counts in keys; write "type"`},
		`{"cniVersion": "7.0.0", "cniVersions": ["0.2.0", "1.0.0", "7.0.0"], "name": "pods", "plugins": [` + good + `, {"type": "relink-checkpoint"}]}`: nil,
	} {
		if diff := cmp.Diff(want, findingsOf(t, "10.conflist", config)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
}

func TestVersionsThatRelinkCheckpointDoesNotSupport(t *testing.T) {
	const plugins = `"name": "a", "plugins": [{"type": "macvlan"}, {"type": "relink-checkpoint"}]}`
	const must = "must be one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
	for config, want := range map[string][]string{
		`{"cniVersion": "0.2.0", ` + plugins:                              {`10.conflist: plugins[1] relink-checkpoint: error: invalid "cniVersion": "0.2.0": ` + must},
		`{` + plugins:                                                     {`10.conflist: plugins[1] relink-checkpoint: error: invalid "cniVersion": missing: ` + must},
		`{"cniVersion": "0.3.0", ` + plugins:                              nil,
		`{"cniVersion": 5, ` + plugins:                                    {`10.conflist: error: invalid "cniVersion": 5: must be a string: put it in quotation marks`},
		`{"cniVersion": "0.2.0", "name": "a", "plugins": [` + good + `]}`: nil,
	} {
		if diff := cmp.Diff(want, findingsOf(t, "10.conflist", config)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
}

// relink-ipam names a file after the network.
func TestANameThatIsTooLongForRelinkIPAM(t *testing.T) {
	for length, want := range map[int][]string{
		247: nil,
		248: {`10.conflist: plugins[0] relink-macvlan: error: invalid "name": "` + strings.Repeat("a", 80) + `...": has 248 characters: a file's name has room for 247`},
	} {
		config := strings.Replace(list(good), "pods", strings.Repeat("a", length), 1)
		if diff := cmp.Diff(want, findingsOf(t, "10.conflist", config)); diff != "" {
			t.Errorf("%d characters (-want +got):\n%s", length, diff)
		}
	}
}

func TestNetworksInTheConfigurationOfMultus(t *testing.T) {
	multus := func(delegates string) string {
		return `{"cniVersion": "0.3.1", "name": "multus", "type": "multus", "kubeconfig": "/etc/x", "delegates": ` + delegates + `}`
	}
	const misspelt = `error: invalid configuration key "masetr": no such key of relink-macvlan; did you mean "master"?`
	for config, want := range map[string][]string{
		multus(`[{"cniVersion": "0.3.1", "name": "lan", "plugins": [{"type": "relink-macvlan", "masetr": "eth0"}]}]`): {"00.conf: multus, delegates[0], plugins[0] relink-macvlan: " + misspelt},
		multus(`[{"type": "flannel"}, {"cniVersion": "0.3.1", "type": "relink-macvlan", "masetr": "eth0"}]`):          {"00.conf: multus, delegates[1], relink-macvlan: " + misspelt},
		multus(`"x"`): nil, multus(`[1, {}]`): nil,
	} {
		if diff := cmp.Diff(want, findingsOf(t, "00.conf", config)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
	chains, _ := readChains([]Network{{File: "00.conf", Config: []byte(multus(`[{"type": "relink-macvlan"}]`))}})
	if diff := cmp.Diff([]string{"multus", "relink-macvlan"}, []string{chains[0].plugins[0].needs[0].value, chains[1].plugins[0].needs[0].value}); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
}

// relink validate looks at relink-ipam's section even if relink-ipam would refuse something outside of it.
func TestRelinkIPAMBesideAWrongValue(t *testing.T) {
	want := []string{
		`10.conflist: plugins[0] bridge: error: invalid "runtimeConfig": []: must be an object: put its keys in { }`,
		`10.conflist: plugins[0] bridge: error: invalid "ipam.ranges": missing: must have a range of addresses to give, such as [[{"subnet": "10.3.0.0/24"}]]`,
	}
	if diff := cmp.Diff(want, findingsOf(t, "10.conflist", list(`{"type": "bridge", "runtimeConfig": [], "ipam": {"type": "relink-ipam"}}`))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

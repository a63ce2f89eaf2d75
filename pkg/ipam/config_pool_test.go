package ipam

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// "pool" is a name, a choice, or a list of both. Other keys go on to work beside it.
func TestPoolNames(t *testing.T) {
	longest := strings.Repeat("a", 200)
	for text, want := range map[string][]string{
		`"pool": "lan"`: {"lan"}, `"pool": ["lan", "lan-6.example"]`: {"lan", "lan-6.example"}, `"pool": ["` + longest + `"]`: {longest},
		`"pool": {"oneOf": ["r1", "r2"]}`: {"r1|r2"}, `"pool": {"oneOf": ["lan"]}`: {"lan"}, `"pool": [{"oneOf": ["r1", "r2"]}, "lan6"], "sticky": "owner", "roam": true`: {"r1|r2", "lan6"},
		`"pool": "lan", "ranges": [], "exclude": [], "gateway": "", "statusExhausted": false`:                                              {"lan"},
		`"pool": "lan", "routes": [{"dst": "10.0.0.0/8"}], "sticky": "pod", "retain": "1h", "quarantine": "1s", "conflictDetection": true`: {"lan"},
		`"pool": "lan", "static": {"namespaces": ["infra"]}, "resolvConf": "/etc/resolv.conf"`:                                             {"lan"},
	} {
		got, err := parseIPAM(text, "")
		if diff := cmp.Diff(want, got.pools); err != nil || diff != "" || got.sets != nil {
			t.Errorf("%s: %v %v (-want +got):\n%s", text, err, got.sets, diff)
		}
	}
	if got, err := parseIPAM(`"pool": null, "subnet": "10.3.0.0/24"`, ""); err != nil || got.pools != nil || len(got.sets) != 1 {
		t.Errorf("null: %+v %v", got.pools, err)
	}
}

// A wrong name, and each key whose place the pool takes, is named with what to do.
func TestWhatIsWrongWithAPoolAndWhatToDo(t *testing.T) {
	const name = `must be the name of an AddressPool: small letters, digits, '-' and '.', with a letter or digit at both ends of each part, and at most 200 of these`
	const form = `must be the name of an AddressPool, an object with the list "oneOf" for the one that selects the node, or a list of these: the pod gets an address of each`
	const roam = `invalid "ipam.roam": "true": needs "sticky", and a "pool" with "oneOf": there the owner's next address is of another pool`
	beside := func(key, value string) string {
		return `invalid "` + key + `": ` + value + `: does not go with "pool", which takes its place: remove it`
	}
	for _, test := range []struct{ ipam, more, msg string }{
		{`"pool": ""`, "", `invalid "ipam.pool": "": ` + name},
		{`"pool": "Lan"`, "", `invalid "ipam.pool": "Lan": ` + name},
		{`"pool": "lan-"`, "", `invalid "ipam.pool": "lan-": ` + name},
		{`"pool": "lan..6"`, "", `invalid "ipam.pool": "lan..6": ` + name},
		{`"pool": "lan/6"`, "", `invalid "ipam.pool": "lan/6": ` + name},
		{`"pool": "` + strings.Repeat("a", 201) + `"`, "", `invalid "ipam.pool": "` + strings.Repeat("a", 80) + `...": ` + name},
		{`"pool": []`, "", `invalid "ipam.pool": []: ` + form},
		{`"pool": 7`, "", `invalid "ipam.pool": 7: ` + form},
		{`"pool": {"name": "lan"}`, "", `invalid configuration key "ipam.pool.name": no such key of relink-ipam; did you mean "oneOf"?`},
		{`"pool": {"rack": "lan"}`, "", `invalid "ipam.pool": {"rack": "lan"}: ` + form},
		{`"pool": {"oneOf": []}`, "", `invalid "ipam.pool": {"oneOf": []}: ` + form},
		{`"pool": {"oneOf": "lan"}`, "", `invalid "ipam.pool": {"oneOf": "lan"}: ` + form},
		{`"pool": ["lan", null]`, "", `invalid "ipam.pool": "": ` + name},
		{`"pool": {"oneOf": ["lan", "a|b"]}`, "", `invalid "ipam.pool": "a|b": ` + name},
		{`"pool": ["lan", {"oneOf": ["lan6", "lan"]}]`, "", `invalid "ipam.pool": "lan": is in the list twice: keep one`},
		{`"pool": {"oneof": ["lan"]}`, "", `invalid configuration key "ipam.pool.oneof": case counts in keys; write "oneOf"`},
		{`"pool": ["lan", {"one_of": ["lan6"]}]`, "", `invalid configuration key "ipam.pool[1].one_of": no such key of relink-ipam; did you mean "oneOf"?`},
		{`"pool": {"oneOf": ["a", "b"]}, "roam": true`, "", roam},
		{`"pool": "lan", "sticky": "pod", "roam": true`, "", roam},
		{`"subnet": "10.3.0.0/24", "sticky": "owner", "roam": true`, "", roam},
		{`"pool": ["lan", "lan"]`, "", `invalid "ipam.pool": "lan": is in the list twice: keep one`},
		{`"pool": "lan", "subnet": "10.3.0.0/24"`, "", beside("ipam.subnet", `"10.3.0.0/24"`)},
		{`"pool": "lan", "rangeStart": "10.3.0.5"`, "", beside("ipam.rangeStart", `"10.3.0.5"`)},
		{`"pool": "lan", "rangeEnd": "10.3.0.5"`, "", beside("ipam.rangeEnd", `"10.3.0.5"`)},
		{`"pool": "lan", "gateway": "10.3.0.1"`, "", beside("ipam.gateway", `"10.3.0.1"`)},
		{`"pool": "lan", "exclude": ["10.3.0.9"]`, "", beside("ipam.exclude", `["10.3.0.9"]`)},
		{`"pool": "lan", "dataDir": "/x"`, "", beside("ipam.dataDir", `"/x"`)},
		{`"pool": "lan", "statusExhausted": true`, "", beside("ipam.statusExhausted", "true")},
		{`"pool": "lan", "ranges": [[{"subnet": "10.3.0.0/24"}]]`, "", beside("ipam.ranges", `[[{"subnet": "10.3.0.0/24"}]]`)},
		{`"pool": "lan"`, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.3.0.0/24"}]]}`,
			beside("runtimeConfig.ipRanges", `[[{"subnet": "10.3.0.0/24"}]]`)},
	} {
		_, err := parseIPAM(test.ipam, test.more)
		var coded *types.Error
		if !errors.As(err, &coded) || coded.Code != types.ErrInvalidNetworkConfig || coded.Msg != test.msg {
			t.Errorf("%s%s: %v\nwant %s", test.ipam, test.more, err, test.msg)
		}
	}
}

// Who examines a configuration learns of its pools. Whether an address is in one only the pool says.
func TestExamineKnowsPools(t *testing.T) {
	for more, needs := range map[string]string{`, "sticky": "owner"`: `"sticky": "owner"`, ``: `"pool"`} {
		var n cniplugin.Network
		if err := cniplugin.Decode([]byte(`{"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "relink-ipam", "pool": ["lan", "lan6"]`+more+`}, "args": {"cni": {"ips": ["10.9.9.9"]}}}`), &n); err != nil {
			t.Fatal(err)
		}
		got, errs := Examine(n)
		if diff := cmp.Diff(ConfigSummary{Pools: []string{"lan", "lan6"}, Store: "pods", NeedsAPI: needs}, got); diff != "" || len(errs) > 0 {
			t.Errorf("%v (-want +got):\n%s", errs, diff)
		}
	}
}

package netconf

import (
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// tagsOf returns the keys from which a struct is decoded.
func tagsOf(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all = append(all, name)
		} else if f.Anonymous {
			all = append(all, tagsOf(f.Type)...)
		}
	}
	return all
}

// relink would refuse a key as misspelt if it is read but not known. It would ignore a key that is known but not read.
func TestKnownKeysAreThoseThatAreRead(t *testing.T) {
	forOthers := []string{"type", "capabilities", "cniVersions"}
	for _, test := range []struct {
		keys cniplugin.Keys
		read any
		more []string
	}{
		{MacvlanKeys, macvlan{}, forOthers},
		{VLANKeys, vlan{}, forOthers},
		{CheckpointKeys, cniplugin.Network{}, append([]string{"dns", "checkpointDir"}, forOthers...)},
		{*MacvlanKeys.Accepted[indexOf(MacvlanKeys, "dns")].Nested, types.DNS{}, nil},
		{*MacvlanKeys.Accepted[indexOf(MacvlanKeys, "runtimeConfig")].Nested, cniplugin.RuntimeConfig{}, nil},
	} {
		known, read := map[string]int{}, map[string]int{}
		for _, k := range test.keys.Accepted {
			known[k.Name]++
		}
		for _, k := range append(tagsOf(reflect.TypeOf(test.read)), test.more...) {
			read[k]++
		}
		if diff := cmp.Diff(read, known); diff != "" {
			t.Errorf("%s (-read +known):\n%s", test.keys.Program, diff)
		}
		for _, hint := range test.keys.Elsewhere {
			if hint.Key != strings.ToLower(hint.Key) || strings.ContainsAny(hint.Key, "_-") || indexOf(test.keys, hint.Key) >= 0 {
				t.Errorf("%s: %q can't be found", test.keys.Program, hint.Key)
			}
		}
	}
}

func indexOf(k cniplugin.Keys, name string) int {
	for i, known := range k.Accepted {
		if known.Name == name {
			return i
		}
	}
	return -1
}

// usual is a configuration as in the examples, with what libcni and Multus add.
const usual = `{"cniVersion": "1.1.0", "name": "vlan3", "type": "relink-macvlan", "master": ["bond4", "eth0"], "vlan": 3, "mode": "bridge", "mtu": 1400,
	"capabilities": {"mac": true, "ips": true}, "runtimeConfig": {"mac": "02:00:00:00:00:01", "ips": ["10.3.0.5"]}, "deviceID": "0000:01:00.0",
	"args": {"cni": {"ips": ["10.3.0.5"]}}, "cni.dev/valid-attachments": [], "dns": {"nameservers": ["10.3.0.1"]},
	"ipam": {"type": "relink-ipam", "ranges": [[{"subnet": "10.3.0.0/24", "gateway": "10.3.0.1"}], [{"subnet": "fd00:3::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]},
	"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.3.0.5/24"}]}}`

func TestUsualConfigurationHasNothingStrangeButWhatOthersAdd(t *testing.T) {
	strange, err := MacvlanKeys.Examine("", []byte(usual))
	want := []cniplugin.UnknownKey{{Key: "deviceID"}, {Key: "cni.dev/valid-attachments"}}
	if diff := cmp.Diff(want, strange); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// BenchmarkMacvlan measures how long an ADD reads its configuration, including the keys.
func BenchmarkMacvlan(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := Macvlan([]byte(usual), cniplugin.Args{}); errs != nil {
			b.Fatal(errs)
		}
	}
}

// BenchmarkKeys measures the part of BenchmarkMacvlan that looks at the keys.
func BenchmarkKeys(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := cniplugin.FirstError(MacvlanKeys.Decode("", []byte(usual), new(any))); err != nil {
			b.Fatal(err)
		}
	}
}

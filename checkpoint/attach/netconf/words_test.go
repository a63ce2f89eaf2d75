package netconf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
)

// A pod would start with something else than the configuration means.
func TestWordsForWhatRelinkHasAreRefused(t *testing.T) {
	meant := func(keys cniplugin.Keys, name string) string {
		return fmt.Sprintf("no such key of %s; did you mean %q?", keys.Program, name)
	}
	for _, test := range []struct {
		keys        cniplugin.Keys
		words, want string
	}{
		{MacvlanKeys, "vlans vlanTag vlan_tag vid tag vlanIds vlan-number", meant(MacvlanKeys, "vlan")},
		{VLANKeys, "vlanTag vid tag vlanIds", meant(VLANKeys, "vlanId")},
		{MacvlanKeys, "masters device dev parent parentDevice interface iface nic uplink", meant(MacvlanKeys, "master")},
		{VLANKeys, "device parent interface nic", meant(VLANKeys, "master")},
		{MacvlanKeys, "macs macAddress hwaddr", meant(MacvlanKeys, "mac")},
		{MacvlanKeys, "modes macvlanMode", meant(MacvlanKeys, "mode")},
		{MacvlanKeys, "vlanProto", meant(MacvlanKeys, "vlanProtocol")},
		{MacvlanKeys, "pool pools addressPool", `a key of the IPAM plugin: write "pool" in "ipam"`},
		{VLANKeys, "static", `a key of the IPAM plugin: write "static" in "ipam"`},
		{MacvlanKeys, "masquerade services preserveSource", `a key of "hostAccess": write it in "hostAccess": { }`},
		{hostAccessKeys, "masq snat", meant(hostAccessKeys, "masquerade")},
		{hostAccessKeys, "fwmark", meant(hostAccessKeys, "mark")},
		{CheckpointKeys, "vlanTag nic vlans", "a key of the interface plugin: write it in that plugin's object of the list"},
		{HostAccessKeys, "vlanTag nic vlans", "a key of the interface plugin: write it in that plugin's object of the list"},
		{ipam.Keys, "pools addressPool ipv4_pools", meant(ipam.Keys, "pool")},
		{ipam.Keys, "subnets cidr network", meant(ipam.Keys, "subnet")},
		{ipam.Keys, "start range_start", `did you mean "rangeStart"?`},
		{ipam.Keys, "gw router", meant(ipam.Keys, "gateway")},
		{hostAccessKeys, "vlan vlanId master ipam", `a key of relink-macvlan: write it beside "hostAccess", not in it`},
		{ipam.Keys, "vlanProtocol hostAccess vlans vid", `a key of the interface plugin: write it beside "ipam", not in it`},
	} {
		for word := range strings.FieldsSeq(test.words) {
			err := cniplugin.FirstError(test.keys.Decode("", fmt.Appendf(nil, `{%q: 1}`, word), new(any)))
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("%s: %s: %v, want %s", test.keys.Program, word, err, test.want)
			}
		}
	}
}

// A range is for addresses alone: a VLAN in it would leave the pod without one.
func TestAnInterfacesKeyInARangeIsRefused(t *testing.T) {
	for _, key := range []string{"vlan", "vlanId", "vlan_id", "vlan ", "vid", "master"} {
		err := cniplugin.FirstError(ipam.Keys.Decode("ipam", fmt.Appendf(nil, `{"ranges": [[{"subnet": "10.3.0.0/24", %q: 3}]]}`, key), new(any)))
		if err == nil || !strings.HasSuffix(err.Error(), `a key of the interface plugin: write it beside "ipam", not in it`) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A runtime keeps to itself what a pod asks for by a capability that the configuration does not have. The pod would get another address, which
// another node may have given.
func TestMisspeltCapabilitiesAreRefused(t *testing.T) {
	for _, of := range []cniplugin.Keys{MacvlanKeys, VLANKeys, CheckpointKeys, HostAccessKeys} {
		for key, want := range map[string]string{"ip": "ips", "IPs": "ips", "addresses": "ips", "ip_ranges": "ipRanges", "macs": "mac", "macAddress": "mac"} {
			err := cniplugin.FirstError(of.Decode("", fmt.Appendf(nil, `{"capabilities": {%q: true}}`, key), new(any)))
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", "capabilities."+key)) || !strings.Contains(err.Error(), fmt.Sprintf("%q", want)) {
				t.Errorf("%s: %s: %v, want %s", of.Program, key, err, want)
			}
		}
		if err := cniplugin.FirstError(of.Decode("", []byte(`{"capabilities": {"ips": true, "mac": true, "ipRanges": true, "portMappings": true, "bandwidth": true, "dns": true, "vendor.example": true, "tc": true}}`), new(any))); err != nil {
			t.Errorf("%s: %v", of.Program, err)
		}
	}
}

// Beside "ipam" nobody reads a key of "ipam", and in it nobody reads a key of an interface plugin.
func TestKeysInTheWrongPlaceAreRefused(t *testing.T) {
	for _, of := range []cniplugin.Keys{MacvlanKeys, VLANKeys, CheckpointKeys, HostAccessKeys} {
		for _, key := range ipam.Keys.Accepted {
			if err := cniplugin.FirstError(of.Decode("", fmt.Appendf(nil, `{%q: 1}`, key.Name), new(any))); err == nil && indexOf(of, key.Name) < 0 {
				t.Errorf("%s: %s of %s is taken", of.Program, key.Name, ipam.PluginName)
			}
		}
		for _, key := range of.Accepted[len(cniplugin.NetworkKeys):] {
			if err := cniplugin.FirstError(ipam.Keys.Decode("", fmt.Appendf(nil, `{%q: 1}`, key.Name), new(any))); err == nil && of.Program != HostAccessName {
				t.Errorf("%s: %s of %s is taken", ipam.PluginName, key.Name, of.Program)
			}
		}
	}
}

// What others write for themselves is no mistake.
func TestKeysOfOthersAreAllowed(t *testing.T) {
	for _, of := range []cniplugin.Keys{MacvlanKeys, VLANKeys, CheckpointKeys, HostAccessKeys, ipam.Keys} {
		for key := range strings.FieldsSeq(`cniVersion name runtimeConfig capabilities prevResult disableCheck disableGC loadOnlyInlinedPlugins ipMasq
			cni.dev/attachments cni.dev/valid-attachments delegates deviceID pciBusID logLevel logFile confDir isGateway _comment comment description
			#vlan //vlan example.com/vlan owner site labels version id tags vlanQoS kubeconfig`) {
			if of.Program == ipam.PluginName && (key == "logLevel" || key == "logFile" || key == "name") {
				continue // Keys of whereabouts.
			}
			if err := cniplugin.FirstError(of.Decode("", fmt.Appendf(nil, `{%q: null}`, key), new(any))); err != nil {
				t.Errorf("%s: %v", of.Program, err)
			}
		}
	}
}

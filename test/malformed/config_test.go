package malformed

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// malformed is one configuration that an ADD refuses.
type malformed struct {
	// body are keys of the plugin or, for those of section, of its "ipam".
	body string
	code uint
	want string
}

const (
	missing  = `missing: `
	quotes   = ", without quotation marks"
	inQuotes = "must be a string: put it in quotation marks"
	mac      = "must be the MAC address of one device: 6 bytes such as 02:00:00:00:00:01, neither zero nor multicast"
	ofMTU    = "must be 0 (the master's MTU) or at least 68"
	network  = "must be a network such as 10.3.0.0/24"
	ofVLAN   = "must be between 1 and 4094"
	modes    = "must be one of bridge, private, vepa, passthru"
)

// of are configurations of the interface plugins and of relink-checkpoint, by the plugin.
var of = map[string][]malformed{
	"relink-macvlan": {
		// Keys.
		{`"vlna": 3`, 7, `invalid configuration key "vlna": no such key of relink-macvlan; did you mean "vlan"?`},
		{`"vlans": 3`, 7, `invalid configuration key "vlans": no such key of relink-macvlan; did you mean "vlan"?`},
		{`"vlanTag": 3`, 7, `invalid configuration key "vlanTag": no such key of relink-macvlan; did you mean "vlan"?`},
		{`"nic": "lan0"`, 7, `invalid configuration key "nic": no such key of relink-macvlan; did you mean "master"?`},
		{`"pools": ["a"]`, 7, `invalid configuration key "pools": a key of the IPAM plugin: write "pool" in "ipam"`},
		{`"vlan_name": "x", "vlan": 3`, 7, `invalid configuration key "vlan_name": no such key of relink-macvlan; did you mean "vlanName"?`},
		{`"masterr": "lan0"`, 7, `"masterr": no such key of relink-macvlan; did you mean "master"?`},
		{`"mut": 1400`, 7, `"mut": no such key of relink-macvlan; did you mean "mtu"?`},
		{`"mdoe": "vepa"`, 7, `"mdoe": no such key of relink-macvlan; did you mean "mode"?`},
		{`"bcqueulen": 5`, 7, `"bcqueulen": no such key of relink-macvlan; did you mean "bcqueuelen"?`},
		{`"linkInContianer": true`, 7, `"linkInContianer": no such key of relink-macvlan; did you mean "linkInContainer"?`},
		{`"vlanProtcol": "802.1q"`, 7, `"vlanProtcol": no such key of relink-macvlan; did you mean "vlanProtocol"?`},
		{`"checkpoint-dir": "DIR"`, 7, `"checkpoint-dir": no such key of relink-macvlan; did you mean "checkpointDir"?`},
		{`"statuscarier": true`, 7, `"statuscarier": no such key of relink-macvlan; did you mean "statusCarrier"?`},
		{`"Master": "lan0"`, 7, `invalid configuration key "Master": case counts in keys; write "master"`},
		{`"MTU": 1400`, 7, `invalid configuration key "MTU": case counts in keys; write "mtu"`},
		{`"mtu": 1400, "MTU": 1500`, 7, `invalid configuration key "MTU": case counts in keys; write "mtu"`},
		{`"mtu": 1400, "mtu": 1500`, 7, `invalid configuration key "mtu": it is there twice; keep one`},
		{`"vlanId": 3`, 7, `invalid configuration key "vlanId": a key of relink-vlan; relink-macvlan has "vlan"`},
		{`"vlanID": 3`, 7, `invalid configuration key "vlanID": a key of relink-vlan; relink-macvlan has "vlan"`},
		{`"subnet": "10.9.0.0/24"`, 7, `invalid configuration key "subnet": a key of the IPAM plugin: write "subnet" in "ipam"`},
		{`"routes": []`, 7, `invalid configuration key "routes": a key of the IPAM plugin: write "routes" in "ipam"`},
		{`"sticky": "pod"`, 7, `invalid configuration key "sticky": a key of the IPAM plugin: write "sticky" in "ipam"`},
		{`"dns": {"nameserver": ["10.3.0.1"]}`, 7, `invalid configuration key "dns.nameserver": no such key of the plugin; did you mean "nameservers"?`},
		{`"runtimeConfig": {"MAC": "02:00:00:00:00:01"}`, 7, `invalid configuration key "runtimeConfig.MAC": case counts in keys; write "mac"`},
		{`"Ipam": {}`, 7, `invalid configuration key "Ipam": case counts in keys; write "ipam"`},
		{`"Type": "relink-macvlan"`, 7, `invalid configuration key "Type": case counts in keys; write "type"`},
		// Types.
		{`"mtu": "1500"`, 7, `invalid "mtu": "1500": must be a whole number` + quotes},
		{`"mtu": 1500.5`, 7, `invalid "mtu": 1500.5: must be a whole number`},
		{`"mtu": 1e4`, 7, `invalid "mtu": 1e4: must be a whole number`},
		{`"mtu": 99999999999999999999`, 7, `invalid "mtu": 99999999999999999999: must be a whole number`},
		{`"mtu": true`, 7, `invalid "mtu": true: must be a whole number`},
		{`"mtu": [1500]`, 7, `invalid "mtu": [1500]: must be a whole number`},
		{`"mtu": {"value": 1500}`, 7, `invalid "mtu": {"value": 1500}: must be a whole number`},
		{`"vlan": "3"`, 7, `invalid "vlan": "3": must be a whole number` + quotes},
		{`"vlan": 3.0`, 7, `invalid "vlan": 3.0: must be a whole number`},
		{`"vlan": [3]`, 7, `invalid "vlan": [3]: must be a whole number`},
		{`"vlanProtocol": 8021, "vlan": 3`, 7, `invalid "vlanProtocol": 8021: ` + inQuotes},
		{`"vlanName": 3, "vlan": 3`, 7, `invalid "vlanName": 3: ` + inQuotes},
		{`"mode": ["bridge"]`, 7, `invalid "mode": ["bridge"]: must be a string`},
		{`"mode": 1`, 7, `invalid "mode": 1: ` + inQuotes},
		{`"mac": 2`, 7, `invalid "mac": 2: ` + inQuotes},
		{`"bcqueuelen": -1`, 7, `invalid "bcqueuelen": -1: must be a whole number from 0 to 4294967295`},
		{`"bcqueuelen": 4294967296`, 7, `invalid "bcqueuelen": 4294967296: must be a whole number from 0 to 4294967295`},
		{`"bcqueuelen": "1000"`, 7, `invalid "bcqueuelen": "1000": must be a whole number from 0 to 4294967295` + quotes},
		{`"linkInContainer": "true"`, 7, `invalid "linkInContainer": "true": must be true or false` + quotes},
		{`"linkInContainer": 1`, 7, `invalid "linkInContainer": 1: must be true or false`},
		{`"statusCarrier": "yes"`, 7, `invalid "statusCarrier": "yes": must be true or false` + quotes},
		{`"checkpointDir": ["/x"]`, 7, `invalid "checkpointDir": ["/x"]: must be a string`},
		{`"checkpointDir": 7`, 7, `invalid "checkpointDir": 7: ` + inQuotes},
		{`"dns": []`, 7, `invalid "dns": []: must be an object: put its keys in { }`},
		{`"dns": {"nameservers": "10.3.0.1"}`, 7, `invalid "dns.nameservers": "10.3.0.1": must be a list: put it in [ ]`},
		{`"dns": {"nameservers": [8]}`, 7, `invalid "dns.nameservers[0]": 8: ` + inQuotes},
		{`"runtimeConfig": []`, 7, `invalid "runtimeConfig": []: must be an object`},
		{`"runtimeConfig": {"mac": 2}`, 7, `invalid "runtimeConfig.mac": 2: ` + inQuotes},
		{`"ipam": "relink-ipam"`, 7, `invalid "ipam": "relink-ipam": must be an object: put its keys in { }`},
		{`"ipam": [{"type": "relink-ipam"}]`, 7, `invalid "ipam": [{"type": "relink-ipam"}]: must be an object`},
		{`"ipam": {"type": 7}`, 7, `invalid "ipam.type": 7: ` + inQuotes},
		{`"ipam": {"subnet": "10.9.0.0/24"}`, 7, `invalid "ipam.type": ` + missing + `must name the IPAM plugin, such as relink-ipam or host-local; leave "ipam" out for no addresses`},
		{`"ipam": {"type": "relink-ipma"}`, 7, `invalid "ipam.type": "relink-ipma": must be a plugin in the runtime's directories, `},
		// Values.
		{`"master": 7`, 7, `invalid "master": 7: must be a device's name or a list of them`},
		{`"master": []`, 7, `invalid "master": []: must name at least one device; leave it out for the default route's device`},
		{`"master": ["lan0", ""]`, 7, `invalid "master": "": must be a device's name`},
		{`"master": ["lan0", "lan0"]`, 7, `invalid "master": "lan0": is in the list twice: keep one`},
		{`"master": ["lan0", 7]`, 7, `invalid "master": ["lan0", 7]: must be a device's name or a list of them`},
		{`"master": "lan9"`, 7, `invalid "master": "lan9": does not exist: name a device that is there`},
		{`"master": "eth0 "`, 7, `invalid "master": "eth0 ": does not exist: name a device that is there`},
		{`"master": ["lan8", "lan9"]`, 7, `invalid "master": "lan8, lan9": none of them exists: name a device that is there`},
		{`"mtu": 20`, 7, `invalid "mtu": 20: ` + ofMTU},
		{`"mtu": -1`, 7, `invalid "mtu": -1: ` + ofMTU},
		{`"mtu": 9000`, 7, `invalid "mtu": 9000: must not be above 1500, the MTU of lan0`},
		{`"vlan": 0`, 7, `invalid "vlan": 0: ` + ofVLAN},
		{`"vlan": -3`, 7, `invalid "vlan": -3: ` + ofVLAN},
		{`"vlan": 4095`, 7, `invalid "vlan": 4095: ` + ofVLAN},
		{`"vlan": 3, "linkInContainer": true`, 7, `invalid "vlan": 3: does not go with linkInContainer: the VLAN device is made on the host`},
		{`"vlanProtocol": "802.1q"`, 7, `invalid "vlan": ` + missing + `vlanProtocol and vlanName need the ID of a VLAN`},
		{`"vlan": 3, "vlanProtocol": "qinq"`, 7, `invalid "vlanProtocol": "qinq": must be 802.1q or 802.1ad`},
		{`"vlan": 3, "vlanName": "sixteen.letters."`, 7, `invalid "vlanName": "sixteen.letters.": has 16 characters, the kernel allows 15`},
		{`"vlan": 3, "vlanName": "../vlan3"`, 7, `invalid "vlanName": "../vlan3": contains '/', ':', white space or a control character`},
		{`"mode": "brigde"`, 7, `invalid "mode": "brigde": ` + modes},
		{`"mode": "BRIDGE"`, 7, `invalid "mode": "BRIDGE": ` + modes},
		{`"mac": "02:00:zz"`, 7, `invalid "mac": "02:00:zz": ` + mac},
		{`"mac": "ff:ff:ff:ff:ff:ff"`, 7, `invalid "mac": "ff:ff:ff:ff:ff:ff": ` + mac},
		{`"mac": "01:00:5e:00:00:01"`, 7, `invalid "mac": "01:00:5e:00:00:01": ` + mac},
		{`"mac": "00:00:00:00:00:00"`, 7, `invalid "mac": "00:00:00:00:00:00": ` + mac},
		{`"mac": "02:00:00:00:00:00:00:01"`, 7, `invalid "mac": "02:00:00:00:00:00:00:01": ` + mac},
		{`"runtimeConfig": {"mac": "lan0"}`, 7, `invalid "runtimeConfig.mac": "lan0": ` + mac},
		{`"checkpointDir": "checkpoints"`, 7, `invalid "checkpointDir": "checkpoints": must be an absolute path`},
		{`"checkpointDir": "~/checkpoints"`, 7, `invalid "checkpointDir": "~/checkpoints": must be an absolute path`},
		{`"mac": "` + strings.Repeat("z", 10000) + `"`, 7, `zzz...": ` + mac},
	},
	"relink-vlan": {
		{`"vlan": 3`, 7, `invalid configuration key "vlan": a key of relink-macvlan; relink-vlan has "vlanId"`},
		{`"vlanId": 3, "vlanName": "x"`, 7, `invalid configuration key "vlanName": a key of relink-macvlan; the device has the pod's interface name: remove it`},
		{`"vlanId": 3, "mode": "bridge"`, 7, `invalid configuration key "mode": a key of relink-macvlan, which relink-vlan does not have`},
		{`"vlanId": 3, "mac": "02:00:00:00:00:01"`, 7, `invalid configuration key "mac": a key of relink-macvlan; a VLAN device has its master's MAC: remove it`},
		{`"vlanId": 3, "tag": 4`, 7, `invalid configuration key "tag": no such key of relink-vlan; did you mean "vlanId"?`},
		{`"vlanid": 3`, 7, `invalid configuration key "vlanid": case counts in keys; write "vlanId"`},
		{`"vlanID": 3, "vlanId": 3`, 7, `invalid configuration key "vlanID": case counts in keys; write "vlanId"`},
		{`"vlan_id": 3`, 7, `invalid configuration key "vlan_id": no such key of relink-vlan; did you mean "vlanId"?`},
		{``, 7, `invalid "vlanId": ` + missing + `must be the VLAN's ID, between 1 and 4094`},
		{`"vlanId": null`, 7, `invalid "vlanId": ` + missing + `must be the VLAN's ID, between 1 and 4094`},
		{`"vlanId": "3"`, 7, `invalid "vlanId": "3": must be a whole number` + quotes},
		{`"vlanId": 0`, 7, `invalid "vlanId": 0: ` + ofVLAN},
		{`"vlanId": 4095`, 7, `invalid "vlanId": 4095: ` + ofVLAN},
		{`"vlanId": 3, "master": ""`, 7, `invalid "master": ` + missing + `must name the device to put the VLAN on`},
		{`"vlanId": 3, "master": "lan9"`, 7, `invalid "master": "lan9": does not exist: name a device that is there`},
		{`"vlanId": 3, "vlanProtocol": "802.1x"`, 7, `invalid "vlanProtocol": "802.1x": must be 802.1q or 802.1ad`},
	},
	"relink-checkpoint": {
		{``, 7, `invalid "prevResult": ` + missing + `relink-checkpoint must come after an interface plugin in a list`},
		{`"prevResult": {}, "master": "lan0"`, 7, `invalid configuration key "master": a key of the interface plugin: write it in that plugin's object of the list`},
		{`"prevResult": {}, "checkpointdir": "DIR"`, 7, `invalid configuration key "checkpointdir": `},
		{`"prevResult": {}, "checkpiontDir": "/x"`, 7, `no such key of relink-checkpoint; did you mean "checkpointDir"?`},
		{`"prevResult": {}, "checkpointDir": "x"`, 7, `invalid "checkpointDir": "x": must be an absolute path`},
		{`"prevResult": {}, "checkpointDir": 1`, 7, `invalid "checkpointDir": 1: ` + inQuotes},
		{`"prevResult": {"cniVersion": "1.1.0", "ips": 7}`, 7, `invalid "prevResult": {"cniVersion": "1.1.0", "ips": 7}: must be the result of an ADD`},
		{`"prevResult": "ok"`, 7, `invalid "prevResult": "ok": must be the result of an ADD`},
	},
}

// section are configurations of relink-ipam: keys of "ipam".
var section = []malformed{
	// Keys.
	{`"subnte": "10.9.0.0/24"`, 7, `invalid configuration key "ipam.subnte": no such key of relink-ipam; did you mean "subnet"?`},
	{`"range_start": "10.9.0.2"`, 7, `invalid configuration key "ipam.range_start": no such key of relink-ipam; did you mean "rangeStart"?`},
	{`"range": "10.9.0.0/24"`, 7, `invalid configuration key "ipam.range": a key of whereabouts; relink-ipam has "subnet"`},
	{`"addresses": [{"address": "10.9.0.2/24"}]`, 7, `invalid configuration key "ipam.addresses": a key of static; relink-ipam has "ranges"`},
	{`"datastore": "kubernetes"`, 7, `invalid configuration key "ipam.datastore": a key of whereabouts, which relink-ipam does not have: remove it`},
	{`"Subnet": "10.9.0.0/24"`, 7, `invalid configuration key "ipam.Subnet": case counts in keys; write "subnet"`},
	{`"subnet": "10.9.0.0/24", "subnet": "10.8.0.0/24"`, 7, `invalid configuration key "ipam.subnet": it is there twice; keep one`},
	{`"subnet": "10.9.0.0/24", "master": "lan0"`, 7, `invalid configuration key "ipam.master": a key of the interface plugin: write it beside "ipam", not in it`},
	{`"subnet": "10.9.0.0/24", "pools": ["a"]`, 7, `invalid configuration key "ipam.pools": no such key of relink-ipam; did you mean "pool"?`},
	{`"pool": {"oneof": ["a", "b"]}`, 7, `invalid configuration key "ipam.pool.oneof": case counts in keys; write "oneOf"`},
	{`"pool": ["a", {"anyOf": ["b", "c"]}]`, 7, `invalid configuration key "ipam.pool[1].anyOf": no such key of relink-ipam; did you mean "oneOf"?`},
	{`"subnet": "10.9.0.0/24", "stiky": "pod"`, 7, `invalid configuration key "ipam.stiky": no such key of relink-ipam; did you mean "sticky"?`},
	{`"ranges": [[{"subnet": "10.9.0.0/24", "gatway": "10.9.0.1"}]]`, 7, `invalid configuration key "ipam.ranges[0][0].gatway": no such key of relink-ipam; did you mean "gateway"?`},
	{`"ranges": [[{"subnet": "10.9.0.0/24", "rangestart": "10.9.0.1"}]]`, 7, `invalid configuration key "ipam.ranges[0][0].rangestart": case counts in keys; write "rangeStart"`},
	{`"subnet": "10.9.0.0/24", "routes": [{"dst": "0.0.0.0/0", "via": "10.9.0.1"}]`, 7, `invalid configuration key "ipam.routes[0].via": no such key of a route; did you mean "gw"?`},
	{`"subnet": "10.9.0.0/24", "conflictDetection": {"probe": 3}`, 7, `invalid configuration key "ipam.conflictDetection.probe": no such key of relink-ipam; did you mean "probes"?`},
	// Types and nesting.
	{`"subnet": 10`, 7, `invalid "ipam.subnet": 10: ` + inQuotes},
	{`"subnet": ["10.9.0.0/24"]`, 7, `invalid "ipam.subnet": ["10.9.0.0/24"]: must be a string`},
	{`"subnet": null`, 7, `invalid "ipam.ranges": ` + missing + `must have a range of addresses to give`},
	{`"subnet": ""`, 7, `invalid "ipam.ranges": ` + missing + `must have a range of addresses to give`},
	{`"ranges": "10.9.0.0/24"`, 7, `invalid "ipam.ranges": "10.9.0.0/24": must be a list: put it in [ ]`},
	{`"ranges": {"subnet": "10.9.0.0/24"}`, 7, `invalid "ipam.ranges": {"subnet": "10.9.0.0/24"}: must be a list: put it in [ ]`},
	{`"ranges": [{"subnet": "10.9.0.0/24"}]`, 7, `invalid "ipam.ranges[0]": {"subnet": "10.9.0.0/24"}: must be a list: put it in [ ]`},
	{`"ranges": [["10.9.0.0/24"]]`, 7, `invalid "ipam.ranges[0][0]": "10.9.0.0/24": must be an object: put its keys in { }`},
	{`"ranges": [[[{"subnet": "10.9.0.0/24"}]]]`, 7, `invalid "ipam.ranges[0][0]": [{"subnet": "10.9.0.0/24"}]: must be an object`},
	{`"ranges": [[]]`, 7, `invalid "ipam.ranges[0]": []: must have at least one range, such as {"subnet": "10.3.0.0/24"}`},
	{`"ranges": []`, 7, `invalid "ipam.ranges": ` + missing},
	{`"ranges": [[{}]]`, 7, `invalid "ipam.ranges[0][0].subnet": ` + missing + network},
	{`"subnet": "10.9.0.0/24", "exclude": "10.9.0.5"`, 7, `invalid "ipam.exclude": "10.9.0.5": must be a list: put it in [ ]`},
	{`"subnet": "10.9.0.0/24", "exclude": [5]`, 7, `invalid "ipam.exclude[0]": 5: ` + inQuotes},
	{`"subnet": "10.9.0.0/24", "routes": "0.0.0.0/0"`, 7, `invalid "ipam.routes": "0.0.0.0/0": must be a list`},
	{`"subnet": "10.9.0.0/24", "routes": ["0.0.0.0/0"]`, 7, `invalid "ipam.routes[0]": "0.0.0.0/0": must be a route such as {"dst": "10.0.0.0/8", "gw": "10.3.0.1"}`},
	{`"subnet": "10.9.0.0/24", "statusExhausted": "no"`, 7, `invalid "ipam.statusExhausted": "no": must be true or false` + quotes},
	{`"subnet": "10.9.0.0/24", "sticky": true`, 7, `invalid "ipam.sticky": true: ` + inQuotes},
	{`"subnet": "10.9.0.0/24", "quarantine": 60`, 7, `invalid "ipam.quarantine": 60: ` + inQuotes},
	{`"pool": {"oneOf": "a"}`, 7, `invalid "ipam.pool": {"oneOf": "a"}: must be the name of an AddressPool, an object with the list "oneOf" for the one that selects the node, or a list of these`},
	{`"pool": {}`, 7, `invalid "ipam.pool": {}: must be the name of an AddressPool`},
	// Values.
	{`"pool": {"oneOf": ["a", "b"]}, "roam": true`, 7, `invalid "ipam.roam": "true": needs "sticky", and a "pool" with "oneOf"`},
	{`"subnet": "10.9.0.0"`, 7, `invalid "ipam.subnet": "10.9.0.0": ` + network},
	{`"subnet": "10.9.0.0/33"`, 7, `invalid "ipam.subnet": "10.9.0.0/33": ` + network},
	{`"subnet": "10.9.0.7/24"`, 7, `invalid "ipam.subnet": "10.9.0.7/24": has bits set beyond its length: the network is 10.9.0.0/24`},
	{`"subnet": "10.9.0.0/32"`, 7, `invalid "ipam.subnet": "10.9.0.0/32": is too small: it has no address to give`},
	{`"subnet": "10.9.0/24"`, 7, `invalid "ipam.subnet": "10.9.0/24": ` + network},
	{`"subnet": " 10.9.0.0/24"`, 7, `invalid "ipam.subnet": " 10.9.0.0/24": ` + network},
	{`"subnet": "10.9.0.0/24", "gateway": "10.8.0.1"`, 7, `invalid "ipam.gateway": "10.8.0.1": must be in the subnet 10.9.0.0/24`},
	{`"subnet": "10.9.0.0/24", "gateway": "10.9.0.1/24"`, 7, `invalid "ipam.gateway": "10.9.0.1/24": must be an IP address`},
	{`"subnet": "10.9.0.0/24", "gateway": "fd00::1"`, 7, `invalid "ipam.gateway": "fd00::1": must be in the subnet 10.9.0.0/24`},
	{`"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.10"`, 7, `invalid "ipam.rangeStart": "10.9.0.20": must not come after rangeEnd 10.9.0.10`},
	{`"subnet": "10.9.0.0/24", "rangeStart": "10.8.0.20"`, 7, `invalid "ipam.rangeStart": "10.8.0.20": must be in the subnet 10.9.0.0/24`},
	{`"rangeStart": "10.9.0.20"`, 7, `invalid "ipam.subnet": ` + missing + `rangeStart, rangeEnd and gateway need a subnet`},
	{`"ranges": [[{"subnet": "10.9.0.0/24"}, {"subnet": "fd00::/64"}]]`, 7, `invalid "ipam.ranges[0][1].subnet": "fd00::/64": must be of the same family as the others in its set`},
	{`"ranges": [[{"subnet": "fd00::/64"}], [{"subnet": "fd00:0::/64"}]]`, 7, `must not be the same as ipam.ranges[0]`},
	{`"ranges": [[{"subnet": "10.9.0.0/24"}, {"subnet": "10.9.0.0/25"}]]`, 7, `invalid "ipam.ranges[0][1]": "10.9.0.1-10.9.0.126": must not overlap ipam.ranges[0][0] (10.9.0.1-10.9.0.254)`},
	{`"subnet": "10.9.0.0/24", "exclude": ["10.9.0.5/24"]`, 7, `invalid "ipam.exclude[0]": "10.9.0.5/24": must be an address, a network such as 10.3.0.0/28, or a span`},
	{`"subnet": "10.9.0.0/24", "exclude": ["10.9.0.9-10.9.0.5"]`, 7, `invalid "ipam.exclude[0]": "10.9.0.9-10.9.0.5": must be`},
	{`"subnet": "10.9.0.0/24", "exclude": ["10.9.0.0/24"]`, 7, `must have an address that is neither excluded nor the gateway`},
	{`"subnet": "10.9.0.0/24", "routes": [{"gw": "10.9.0.1"}]`, 7, `invalid "ipam.routes[0]": {"gw": "10.9.0.1"}: must be a route such as`},
	{`"subnet": "10.9.0.0/24", "routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]`, 7, `invalid "ipam.routes[0].gw": "fd00::1": must be of the family of the destination 10.0.0.0/8`},
	{`"subnet": "10.9.0.0/24", "routes": [{"dst": "10.0.0.0/8", "mtu": -1}]`, 7, `invalid "ipam.routes[0].mtu": -1: must be between 0 and 4294967295`},
	{`"subnet": "10.9.0.0/24", "dataDir": "leases"`, 7, `invalid "ipam.dataDir": "leases": must be an absolute path`},
	{`"subnet": "10.9.0.0/24", "resolvConf": "resolv.conf"`, 7, `invalid "ipam.resolvConf": "resolv.conf": must be an absolute path`},
	{`"subnet": "10.9.0.0/24", "resolvConf": "/etc/none/resolv.conf"`, 7, `invalid "ipam.resolvConf": "/etc/none/resolv.conf": must be a file that can be read: no such file or directory`},
	{`"subnet": "10.9.0.0/24", "sticky": "yes"`, 7, `invalid "ipam.sticky": "yes": must be none, pod or owner`},
	{`"subnet": "10.9.0.0/24", "sticky": "pod", "retain": "3d"`, 7, `invalid "ipam.retain": "3d": must be a duration such as 24h`},
	{`"subnet": "10.9.0.0/24", "retain": "24h"`, 7, `invalid "ipam.retain": "24h": needs "sticky": "pod"`},
	{`"subnet": "10.9.0.0/24", "quarantine": "-1s"`, 7, `invalid "ipam.quarantine": "-1s": must be a duration such as 60s, or 0s for none`},
	{`"subnet": "10.9.0.0/24", "conflictDetection": "true"`, 7, `invalid "ipam.conflictDetection": "true": must be true, false or an object such as`},
	{`"subnet": "10.9.0.0/24", "conflictDetection": {"probes": 99}`, 7, `invalid "ipam.conflictDetection.probes": 99: must be between 1 and 10`},
	{`"subnet": "10.9.0.0/24", "conflictDetection": {"wait": "1h"}`, 7, `invalid "ipam.conflictDetection.wait": "1h": must be a duration such as 200ms, at most 2s`},
}

// asked are addresses that a runtime asks for: keys beside "ipam", which has a subnet of each family.
var asked = []malformed{
	{`"runtimeConfig": {"ips": "10.9.0.5"}`, 7, `invalid "runtimeConfig.ips": "10.9.0.5": must be a list: put it in [ ]`},
	{`"runtimeConfig": {"ips": [7]}`, 7, `invalid "runtimeConfig.ips[0]": 7: ` + inQuotes},
	{`"runtimeConfig": {"ips": ["five"]}`, 7, `invalid "runtimeConfig.ips[0]": "five": must be an IP address`},
	{`"runtimeConfig": {"ips": ["10.9.0.5/33"]}`, 7, `invalid "runtimeConfig.ips[0]": "10.9.0.5/33": must be an IP address`},
	{`"runtimeConfig": {"ips": ["10.9.0.5", "fd00:9::5", "fd00:9:0::5"]}`, 7, `invalid "runtimeConfig.ips[2]": "fd00:9:0::5": is in the list twice: keep one`},
	{`"runtimeConfig": {"ipRanges": [{"subnet": "10.7.0.0/24"}]}`, 7, `invalid "runtimeConfig.ipRanges[0]": {"subnet": "10.7.0.0/24"}: must be a list`},
	{`"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.1/24"}]]}`, 7, `invalid "runtimeConfig.ipRanges[0][0].subnet": "10.7.0.1/24": has bits set beyond its length`},
	{`"args": {"cni": {"ips": ["fd00:9::5", "fd00:9::5"]}}`, 7, `invalid "args.cni.ips[1]": "fd00:9::5": is in the list twice: keep one`},
	{`"args": {"cni": {"ips": "fd00:9::5"}}`, 7, `invalid "args.cni.ips": "fd00:9::5": must be a list: put it in [ ]`},
	{`"args": "IP=10.9.0.5"`, 7, `invalid "args": "IP=10.9.0.5": must be an object: put its keys in { }`},
}

// whole are configurations of any plugin, from the first byte to the last.
var whole = []malformed{
	{``, 6, `network configuration: is empty: must be an object in JSON`},
	{"\n\n", 6, `network configuration: is empty: must be an object in JSON`},
	{`null`, 7, `invalid "name": ` + missing + `must be the network's name`},
	{`[]`, 6, `network configuration: must be an object`},
	{`"relink"`, 6, `network configuration: must be an object`},
	{`name: pods`, 6, `network configuration: is no JSON from "name: pods" in line 1 on`},
	{`{"cniVersion": "1.1.0", "name": "pods"`, 6, `network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing`},
	{`{"cniVersion": "1.1.0", "name": "pods",}`, 6, `network configuration: is no JSON from ",}" in line 1 on`},
	{`{"cniVersion": "1.1.0", "name": "pods"} {}`, 6, `network configuration: is no JSON from "{}" in line 1 on`},
	{`{"cniVersion": "1.1.0", "name": "pods"}}`, 6, `network configuration: is no JSON from "}" in line 1 on`},
	{`{"cniVersion": "1.1.0", /* comment */ "name": "pods"}`, 6, `network configuration: is no JSON from "/* comment */ `},
	{"{\"cniVersion\": \"1.1.0\", \"name\": \"pods\", \"master\": \"\xff\xfe\"}", 6, `network configuration: is no JSON: line 1 has bytes that are not UTF-8`},
	{`{"cniVersion": "1.1.0", "name": "pods", "x": ` + strings.Repeat("[", 20000), 6, `network configuration: is no JSON`},
	{`{"cniVersion": "1.1.0"}`, 7, `invalid "name": ` + missing + `must be the network's name`},
	{`{"cniVersion": "1.1.0", "name": 7}`, 7, `invalid "name": 7: ` + inQuotes},
	{`{"cniVersion": "1.1.0", "name": "../etc"}`, 7, `invalid "name": "../etc": must start with a letter or a digit and contain only`},
	{`{"cniVersion": "1.1.0", "name": "shop/pods"}`, 7, `invalid "name": "shop/pods": must start with a letter or a digit and contain only`},
	{`{"cniVersion": 1.1, "name": "pods"}`, 7, `invalid "cniVersion": 1.1: ` + inQuotes},
	{`{"cniVersion": "9.9.9", "name": "pods"}`, 1, `invalid "cniVersion": "9.9.9": must be one of `},
	{`{"cniVersion": "1.1", "name": "pods"}`, 1, `invalid "cniVersion": "1.1": must be one of `},
	{`{"cniVersion": "1.1.0", "name": "pods", "junk": "` + strings.Repeat("x", 10<<20) + `", "mtu": "1"`, 6, `network configuration: is no JSON: it ends too early`},
}

// environment are CNI_ARGS and other variables, by what they say.
var environment = []malformed{
	{`CNI_ARGS=MAC`, 4, `invalid CNI_ARGS: "MAC": must be of the form KEY=VALUE, with ; between the pairs`},
	{`CNI_ARGS=K8S_POD_NAME=a;;`, 4, `invalid CNI_ARGS: "": must be of the form KEY=VALUE, with ; between the pairs`},
	{`CNI_ARGS=MAC=02:00`, 4, `invalid CNI_ARGS: "MAC=02:00": ` + mac},
	{`CNI_ARGS=MAC=ff:ff:ff:ff:ff:ff`, 4, `invalid CNI_ARGS: "MAC=ff:ff:ff:ff:ff:ff": ` + mac},
	{`CNI_ARGS=IP=ten`, 4, `invalid CNI_ARGS: "IP=ten": must be an IP address`},
	{`CNI_ARGS=IP=10.9.0.5,fd00:9::5,fd00:9:0::5`, 4, `invalid CNI_ARGS: "IP=fd00:9:0::5": is in the list twice: keep one`},
	{`CNI_ARGS=IP=10.9.0.5,`, 4, `invalid CNI_ARGS: "IP=": must be an IP address`},
	{`CNI_ARGS=IP=10.9.0.5/64`, 4, `invalid CNI_ARGS: "IP=10.9.0.5/64": must be an IP address`},
	{`CNI_NETNS=ns`, 4, `invalid CNI_NETNS: "ns": must be an absolute path`},
	{`CNI_NETNS=/run/netns/none`, 4, `invalid CNI_NETNS: "/run/netns/none": must be the path of a network namespace: `},
	{`CNI_IFNAME=.eth0`, 4, `".eth0": a name that begins with a dot cannot be remembered`},
	{`RELINK_CHECKPOINT_DIR=here`, 4, `invalid RELINK_CHECKPOINT_DIR: "here": must be an absolute path`},
	{`RELINK_IPAM_DIR=here`, 4, `invalid RELINK_IPAM_DIR: "here": must be an absolute path`},
}

// config returns a configuration with the keys of the body, and with those that it needs besides,
// unless they are in the body.
func config(n node, plugin, body string) string {
	keys := []string{`"cniVersion": "1.1.0"`, `"name": "pods"`, fmt.Sprintf(`"type": %q`, plugin)}
	for key, value := range map[string]string{
		"checkpointDir": fmt.Sprintf("%q", n.dir+"/checkpoints"),
		"master":        `"lan0"`,
		"ipam":          ipam(n, `"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]`),
	} {
		if needed := plugin != "relink-checkpoint" || key == "checkpointDir"; needed && !strings.Contains(body, `"`+key+`":`) {
			keys = append(keys, fmt.Sprintf("%q: %s", key, value))
		}
	}
	if body != "" {
		keys = append(keys, strings.ReplaceAll(body, `"DIR"`, fmt.Sprintf("%q", n.dir+"/checkpoints")))
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// ipam returns a section of relink-ipam with the keys of the body.
func ipam(n node, body string) string {
	if strings.Contains(body, `"dataDir"`) {
		return fmt.Sprintf(`{"type": "relink-ipam", %s}`, body)
	}
	return fmt.Sprintf(`{"type": "relink-ipam", "dataDir": %q, %s}`, n.dir+"/leases", body)
}

// expectRefused calls ADD, which has to be refused, and a DEL, which has to succeed if it can know what to
// detach.
func (n node) expectRefused(t *testing.T, plugin, config string, m malformed, variables ...string) {
	t.Helper()
	said := n.call(t, plugin, "ADD", config, variables...)
	expectReadable(t, said.Msg)
	if said.Code != m.code || !strings.Contains(said.Msg, m.want) {
		t.Errorf("%s ADD %.400s\ncode %d: %s\nwant code %d: %s", plugin, config, said.Code, said.Msg, m.code, m.want)
	}
	n.expectNothing(t)
}

// undetachable are the errors of a DEL that does not know what to detach, or from where.
var undetachable = regexp.MustCompile(`^network configuration: |^invalid "(name|cniVersion|ipam|ipam\.type)": |^invalid CNI_|dataDir": "|RELINK_IPAM_DIR|interface name|: a plugin in the runtime's|failed to find plugin`)

func (n node) expectDetached(t *testing.T, plugin, config string, variables ...string) {
	t.Helper()
	said := n.call(t, plugin, "DEL", config, variables...)
	if said.Code != 0 && !undetachable.MatchString(strings.TrimPrefix(said.Msg, "IPAM plugin relink-ipam: ")) {
		t.Errorf("%s DEL %.400s\ncode %d: %s", plugin, config, said.Code, said.Msg)
	}
	if said.Code != 0 {
		expectReadable(t, said.Msg)
	}
}

// expectKeyReported says that a STATUS reports a key that an ADD refuses, and that a CHECK and a GC pass over it.
func (n node) expectKeyReported(t *testing.T, plugin, config string, m malformed) {
	t.Helper()
	if !strings.Contains(m.want, "configuration key") {
		return
	}
	if said := n.call(t, plugin, "STATUS", config); said.Code != 7 || !strings.Contains(said.Msg, m.want) {
		t.Errorf("%s STATUS %.400s\ncode %d: %s\nwant code 7: %s", plugin, config, said.Code, said.Msg, m.want)
	}
	// No attachment is there for a CHECK.
	if said := n.call(t, plugin, "CHECK", config); strings.Contains(said.Msg, "configuration key") {
		t.Errorf("%s CHECK %.400s\ncode %d: %s", plugin, config, said.Code, said.Msg)
	}
	if said := n.call(t, plugin, "GC", strings.Replace(config, "{", `{"cni.dev/valid-attachments": [], `, 1)); said.Code != 0 {
		t.Errorf("%s GC %.400s\ncode %d: %s", plugin, config, said.Code, said.Msg)
	}
}

// A pod that runs outlives a mistake in its network's configuration: a runtime may rebuild a pod whose CHECK fails, and an ADD would
// refuse it. What others write into the configuration is no mistake.
func TestMistakeInAConfigurationEndsNoPod(t *testing.T) {
	n := newNode(t)
	good := config(n, "relink-macvlan", `"master": "lan0", "_comment": "ours", "comment": "rack 7", "description": "x", "owner": "net", "capabilities": {"mac": true},
		"deviceID": "0000:01:00.0", "ipMasq": true, "disableCheck": false, "cni.dev/valid-attachments": [], "runtimeConfig": {"portMappings": [], "vlan": 3},
		"args": {"cni": {"labels": []}}, "ipam": `+ipam(n, `"subnet": "10.9.0.0/24", "rangeEnd": "10.9.0.9", "comment": "x", "_vlan": 3`))
	result, err := n.add(good)
	if err != nil {
		t.Fatalf("ADD: %v: %s", err, result)
	}
	for _, wrong := range []string{
		strings.Replace(good, `"master"`, `"vlans": 3, "nic": "lan0", "Mode": "x", "master"`, 1), strings.Replace(good, `"subnet"`, `"pools": ["a"], "gatway": "10.9.0.1", "subnet"`, 1),
		strings.Replace(good, `"master": "lan0"`, `"master": "lan9", "mtu": "x"`, 1),
	} {
		wrong = strings.TrimSuffix(wrong, "}") + `, "prevResult": ` + string(result) + "}"
		for _, command := range []string{"CHECK", "ADD", "DEL"} {
			if said := n.call(t, "relink-macvlan", command, wrong); (said.Code != 0) != (command == "ADD") {
				t.Errorf("%s %s\ncode %d: %s", command, wrong, said.Code, said.Msg)
			}
			if command == "CHECK" {
				if said := n.call(t, "relink-ipam", command, wrong); said.Code != 0 {
					t.Errorf("relink-ipam CHECK %s\ncode %d: %s", wrong, said.Code, said.Msg)
				}
			}
		}
		if result, err = n.add(good); err != nil {
			t.Fatalf("ADD: %v: %s", err, result)
		}
	}
	if said := n.call(t, "relink-macvlan", "DEL", good); said.Code != 0 {
		t.Error(said)
	}
}

func TestMalformedConfigurationsAreRefused(t *testing.T) {
	n, count := newNode(t), 0
	for plugin, all := range of {
		for _, m := range all {
			c := config(n, plugin, m.body)
			n.expectRefused(t, plugin, c, m)
			n.expectDetached(t, plugin, c)
			n.expectKeyReported(t, plugin, c, m)
			count++
		}
	}
	for _, m := range section {
		c := config(n, "relink-macvlan", `"master": "lan0", "ipam": `+ipam(n, m.body))
		n.expectRefused(t, "relink-macvlan", c, m)
		n.expectDetached(t, "relink-macvlan", c)
		// Another program has the section read by relink-ipam.
		n.expectRefused(t, "relink-ipam", c, m)
		n.expectDetached(t, "relink-ipam", c)
		n.expectKeyReported(t, "relink-ipam", c, m)
		count++
	}
	for _, m := range asked {
		c := config(n, "relink-macvlan", m.body)
		for _, plugin := range []string{"relink-macvlan", "relink-ipam"} {
			n.expectRefused(t, plugin, c, m)
			n.expectDetached(t, plugin, c)
		}
		count++
	}
	for _, m := range environment {
		c := config(n, "relink-macvlan", "")
		if strings.HasPrefix(m.body, "RELINK") {
			c = `{"cniVersion": "1.1.0", "name": "pods", "master": "lan0", "ipam": {"type": "relink-ipam", "subnet": "10.9.0.0/24"}}`
			if m.body == "RELINK_IPAM_DIR=here" {
				c = strings.Replace(c, `"name"`, fmt.Sprintf(`"checkpointDir": %q, "name"`, n.dir), 1)
			}
		}
		n.expectRefused(t, "relink-macvlan", c, m, m.body)
		count++
	}
	if t.Logf("%d configurations", count); count < 100 {
		t.Errorf("%d configurations are too few", count)
	}
}

// Who forgets sudo is told.
func TestWhoIsNotRootIsTold(t *testing.T) {
	n := newNode(t)
	const nobody = 65534
	for plugin, code := range map[string]uint{"relink-macvlan": 5, "relink-ipam": 5} {
		said := n.callAs(t, nobody, plugin, "ADD", config(n, plugin, ""))
		expectReadable(t, said.Msg)
		if want := "permission denied (" + plugin + " needs root and runs as user 65534)"; said.Code != code || !strings.HasSuffix(said.Msg, want) {
			t.Errorf("%s: code %d: %s\nwant code %d: ... %s", plugin, said.Code, said.Msg, code, want)
		}
		if said := n.callAs(t, nobody, plugin, "ADD", "{"); strings.Contains(said.Msg, "root") {
			t.Errorf("%s: what root would not change: %s", plugin, said.Msg)
		}
	}
	n.expectNothing(t)
}

// What is no configuration at all is refused by all plugins alike.
func TestWhatIsNoConfigurationIsRefused(t *testing.T) {
	n := newNode(t)
	for _, plugin := range []string{"relink-macvlan", "relink-vlan", "relink-checkpoint", "relink-ipam"} {
		for _, m := range whole {
			n.expectRefused(t, plugin, m.body, m)
		}
	}
}

package cniplugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pluginKeys are keys of all sorts.
var pluginKeys = Keys{
	Program: "relink-test",
	Accepted: append(ConfigKeys[:len(ConfigKeys):len(ConfigKeys)], Key{Name: "vlan"}, Key{Name: "mode"}, Key{Name: "mac"},
		Key{Name: "ranges", Nested: &Keys{Program: "relink-test", Accepted: []Key{{Name: "subnet"}}}}),
	Elsewhere: []Hint{{Key: "vlanid", Remedy: "a key of another"}},
}

func TestExamineSaysWhatIsStrangeAboutTheKeys(t *testing.T) {
	near := func(key, meant string) string {
		return `invalid configuration key "` + key + `": no such key of relink-test; did you mean "` + meant + `"?`
	}
	for in, want := range map[string][]string{
		`{}`:                              nil,
		`{"mtu": 1500, "vlan": 3}`:        nil,
		`{"vlna": 3}`:                     {near("vlna", "vlan")},
		`{"vla": 3}`:                      {near("vla", "vlan")},
		`{"masetr": 3}`:                   {near("masetr", "master")},
		`{"check_point_dir": "/x"}`:       {near("check_point_dir", "checkpointDir")},
		`{"Master": "eth0"}`:              {`invalid configuration key "Master": case counts in keys; write "master"`},
		`{"mtu": 1, "MTU": 2}`:            {`invalid configuration key "MTU": case counts in keys; write "mtu"`},
		`{"MTU": 1, "mtu": 2}`:            {`invalid configuration key "MTU": case counts in keys; write "mtu"`},
		`{"mtu": 1, "vlan": 3, "mtu": 1}`: {`invalid configuration key "mtu": it is there twice; keep one`},
		`{"mtu": 1, "mtu": 1, "mtu": 1}`:  {`invalid configuration key "mtu": it is there twice; keep one`},
		`{"vlan\u0049d": 1}`:              {`invalid configuration key "vlanId": a key of another`},
		`{"_vlan_id": 1, "#vlanid": 1, "x.vlanid": 1}`: {"_vlan_id", "#vlanid", "x.vlanid"},
		`{"vlan_id": 1}`:                                  {`invalid configuration key "vlan_id": a key of another`},
		`{"ranges": [[{}, {"subnte": 1}]]}`:               {near("ranges[0][1].subnte", "subnet")},
		`{"ranges": {"Subnet": 1}}`:                       {`invalid configuration key "ranges.Subnet": case counts in keys; write "subnet"`},
		`{"dns": {"nameserver": []}}`:                     {`invalid configuration key "dns.nameserver": no such key of the plugin; did you mean "nameservers"?`},
		`{"runtimeConfig": {"IPs": []}}`:                  {`invalid configuration key "runtimeConfig.IPs": case counts in keys; write "ips"`},
		`{"args": {"cni": {"Ips": []}}}`:                  {`invalid configuration key "args.cni.Ips": case counts in keys; write "ips"`},
		`{"prevResult": {"mtu": 1, "mtu": 2}}`:            nil,
		`{"runtimeConfig": {"macs": 1, "ip": 1}}`:         {"runtimeConfig.macs", "runtimeConfig.ip"},
		`{"foreign": {"mtu": 1, "mut": 2}, "foreign": 1}`: {"foreign", "foreign"},
		`{"mut": 1, "other": 1, "Vlan": 1}`:               {near("mut", "mtu"), "other", `invalid configuration key "Vlan": case counts in keys; write "vlan"`},
	} {
		strange, err := pluginKeys.Examine("", []byte(in))
		var got []string
		for _, s := range strange {
			if s.Err == nil {
				got = append(got, s.Key)
				continue
			}
			said := code(t, s.Err)
			if said.Code != 7 {
				t.Errorf("%s: code %d", in, said.Code)
			}
			got = append(got, said.Msg)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", in, err, diff)
		}
		var first error
		for _, s := range strange {
			if first == nil {
				first = s.Err
			}
		}
		if diff := cmp.Diff(code(t, first), code(t, FirstError(pluginKeys.Decode("", []byte(in), new(any))))); diff != "" {
			t.Errorf("%s: Check (-want +got):\n%s", in, diff)
		}
	}
}

// What runtimes, libcni, Multus and other plugins write is never taken for a misspelt key.
func TestKeysOfOthersAreAllowed(t *testing.T) {
	for _, key := range []string{
		// The specification, and libcni.
		"cniVersion", "name", "type", "capabilities", "args", "runtimeConfig", "prevResult", "ipMasq", "cniVersions", "disableCheck", "disableGC",
		"loadOnlyInlinedPlugins", "plugins", "cni.dev/valid-attachments", "cni.dev/attachments",
		// Multus, and what is under it.
		"deviceID", "pciBusID", "delegates", "kubeconfig", "clusterNetwork", "defaultNetworks", "logLevel", "logFile", "confDir", "cniDir", "binDir",
		"readinessindicatorfile", "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/resourceName", "systemNamespaces", "namespaceIsolation",
		// Other plugins.
		"isGateway", "isDefaultGateway", "hairpinMode", "promiscMode", "forceAddress", "vlanTrunk", "macspoofchk", "preserveDefaultVlan", "portIsolation",
		"enabledad", "sysctl", "promisc", "allmulti", "txQLen", "dataDir2", "bridge", "hwaddr", "kernelpath", "spoofchk", "trust", "link_state",
		"min_tx_rate", "vf", "vrfname", "table", "policy", "snat", "conditionsV4", "externalSetMarkChain", "ingressRate", "egressBurst",
		// Comments.
		"_comment", "_mtu", "#mtu", "//", "$schema", "comment", "description", "example.com/mtu", "map", "max", "ns",
	} {
		if err := FirstError(pluginKeys.Decode("", fmt.Appendf(nil, `{%q: 1}`, key), new(any))); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestExamineSaysWhatIsNoJSON(t *testing.T) {
	const config, behind = "network configuration", ": a comma, a quotation mark or a bracket is missing or too many"
	for in, want := range map[string]string{
		"":                            config + ": is empty: must be an object in JSON",
		" \n":                         config + ": is empty: must be an object in JSON",
		`{"mtu": 1`:                   config + ": is no JSON: it ends too early: a quotation mark or a bracket is missing",
		`{"mtu": 1} trailing`:         config + `: is no JSON from "trailing" in line 1 on` + behind,
		"{\"mtu\": 1}\n}":             config + `: is no JSON from "}" in line 2 on` + behind,
		"{\n\"mtu\": 1,\n}":           config + `: is no JSON from ",\n}" in line 2 on` + behind,
		"{\n\"mtu\": 1\n\"vlan\": 3}": config + `: is no JSON from "\"vlan\": 3}" in line 3 on` + behind,
		`{'mtu': 1}`:                  config + `: is no JSON from "'mtu': 1}" in line 1 on` + behind,
		"{\"name\":\n\"\xff\"}":       config + ": is no JSON: line 2 has bytes that are not UTF-8",
	} {
		_, err := pluginKeys.Examine("", []byte(in))
		if diff := cmp.Diff(coded{6, want}, code(t, err)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
	deep := strings.Repeat(`{"ranges":[`, 20000)
	if _, err := pluginKeys.Examine("", []byte(deep)); err == nil {
		t.Error("what is too deep is taken")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"vlan", "mtu", "mac", "master", "bcqueuelen", "host-local"}
	for in, want := range map[string]string{
		"vlna": "vlan", "vln": "vlan", "vlaan": "", "clan": "", "vl": "", "vlanId": "", "v": "", "": "",
		"mut": "mtu", "mt": "", "mtuu": "", "mtv": "", "map": "", "m": "",
		"maser": "master", "mastre": "master", "mastar": "master", "masters": "master", "mistress": "",
		"bcqueulen": "bcqueuelen", "BCQueueLength": "", "bc_queue_len": "bcqueuelen", "hostlocal": "host-local", "host_lcoal": "host-local",
	} {
		if got := Nearest(in, names...); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

// knownKeys are those of relink's plugins.
var knownKeys = strings.Fields(`cniVersion cniVersions name type ipam capabilities prevResult runtimeConfig args dns master mtu linkInContainer
	statusCarrier checkpointDir mode mac bcqueuelen vlan vlanId vlanProtocol vlanName subnet rangeStart rangeEnd gateway ranges routes dataDir
	resolvConf exclude sticky retain quarantine statusExhausted conflictDetection nameservers domain search options`)

// Keys that other programs read are no misspelt ones of relink's.
func TestNearestPassesOverTheKeysOfOthers(t *testing.T) {
	for _, key := range strings.Fields(`CNIDeviceInfoFile addr advmss allmulti apiVersion auxiliaryCNIChainName backend bandwidth binDir bootstrapKubeconfig
		bridge capabilityArgs certDir certDuration chrootDir cleanup clusterNetwork cni cniArgs cniConfigDir cniDir code commandLog compress conditionsV4
		conditionsV6 confDir config connectionLimit containerID containerPort daemonSocketDir datastore debugFile default-route defaultNetworks delegate
		delegates details device deviceID disableCheck disableContainerInterface disableGC dst egressBurst egressRate enableIPv6 enabled enabledad
		endpointMacPrefix env externalSetMarkChain firewalldZone forceAddress forceCNIVersion fromArg globalNamespaces group gw hairpinMode hostIP
		hostInterface hostPort hwaddr id ifName ifname ignoreunknown infinibandGUID ingressBurst ingressPolicy ingressRate interface interfaces ip ip4 ip6
		ipMasq ipMasqBackend ipRequest ips ipv4 ipv4_pools iptablesAdminChainName isDefaultGateway isGateway kernelpath kind kubeconfig kubernetes
		link_state logFile logLevel logOptions logToStderr loopbackDSR macspoofchk markMasqBit masqAll maxAge maxBackups maxID maxSize max_tx_rate mdns
		metricsPort minID min_tx_rate model msg mtuProbe multiQueue multusNamespace namespace namespaceIsolation netns network networkName networks node
		nodename nodes overrideNetworkName owner parent pciBusID pciID plugins pmtu podCIDR policies policy portIsolation portMappings
		preserveDefaultVlan priority promisc promiscMode protocol provide rdma readinessindicatorfile request resourceName result sample sandbox scope
		selinuxContext servers skipDefault snat socketDir spoofchk sysctl systemNamespaces table tags trust txQLen valid value version vlanMode vlanQoS
		vlanTrunk vrfname vxlan trace mark mask map max made lan wlan lane plan note named tape arm ns dn`) {
		if near := Nearest(key, knownKeys...); near != "" && near != key {
			t.Errorf("%s: taken for %s", key, near)
		}
	}
}

func TestNearestFindsWhatIsMisspelt(t *testing.T) {
	for _, pair := range strings.Fields(`vlna:vlan valn:vlan vln:vlan vla:vlan mut:mtu mca:mac mdoe:mode
		mod:mode naem:name nme:name tpye:type agrs:args ipma:ipam iapm:ipam dsn:dns masetr:master maser:master mastr:master
		mater:master msater:master masters:master mastar:master vlans:vlan modes:mode macs:mac subnte:subnet subent:subnet subnets:subnet sub_net:subnet subnat:subnet
		gatway:gateway gatewya:gateway gateways:gateway gatewey:gateway rangs:ranges rnages:ranges route:routes rotues:routes rangeStrat:rangeStart
		range_start:rangeStart rangend:rangeEnd dataDri:dataDir data_dir:dataDir resolveConf:resolvConf resolvCnof:resolvConf excldue:exclude
		excludes:exclude stiky:sticky stickyy:sticky retian:retain quarentine:quarantine quarantinne:quarantine quarantin:quarantine vlanid:vlanId
		vlan_id:vlanId vlanProtocl:vlanProtocol vlanPrtocol:vlanProtocol vlanNam:vlanName bcqueulen:bcqueuelen bc_queue_len:bcqueuelen
		checkpointdir:checkpointDir check_point_dir:checkpointDir checkpiontDir:checkpointDir linkIncontainer:linkInContainer
		linkInContaner:linkInContainer statusCarier:statusCarrier conflictDetecton:conflictDetection capabiliities:capabilities cniVersoin:cniVersion
		nameserver:nameservers`) {
		key, want, _ := strings.Cut(pair, ":")
		if got := Nearest(key, knownKeys...); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestDecodeAllGoesOnBehindAWrongValue(t *testing.T) {
	var c Config
	errs := DecodeAll("", []byte(`{"mtu": "1", "name": "pods", "master": 7, "ipam": "static", "linkInContainer": 0, "mtu": 1.5, "checkpointDir": "/x"}`), &c)
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	want := []string{
		`invalid "mtu": "1": must be a whole number, without quotation marks`, `invalid "master": 7: must be a device's name or a list of them`,
		`invalid "ipam": "static": must be an object: put its keys in { }`, `invalid "linkInContainer": 0: must be true or false`,
		`invalid "mtu": null: must be of another type`,
	}
	if diff := cmp.Diff(want[:4], got[:4]); diff != "" || c.Name != "pods" {
		t.Errorf("%+v (-want +got):\n%s", c, diff)
	}
}

package cniplugin

import "slices"

// NetworkKeys are the keys of Network, and those that the specification and libcni put beside them. libcni
// adds "prevResult" and "runtimeConfig". The keys in "ipam" depend on the plugin that it names, and are not
// looked into here.
var NetworkKeys = append(KeyNames("cniVersion", "cniVersions", "name", "type", "ipam", "prevResult", "allowPersistentIPs"),
	Key{Name: "capabilities", Nested: &capabilityKeys},
	Key{Name: "runtimeConfig", Nested: &Keys{Shared: true, Accepted: KeyNames("mac", "ips", "ipRanges")}},
	Key{Name: "args", Nested: &Keys{Shared: true, Accepted: []Key{{Name: "cni", Nested: &Keys{Shared: true, Accepted: KeyNames("ips")}}}}},
)

// capabilityKeys are the keys of "capabilities": those that relink reads, and the others of CNI's CONVENTIONS.md, which another plugin may
// read. If one of relink's is misspelt, the runtime keeps what the pod asks for to itself, and the pod gets another address or MAC.
var capabilityKeys = Keys{
	Program:  `"capabilities"`,
	Accepted: KeyNames("mac", "ips", "ipRanges", "portMappings", "bandwidth", "dns", "infinibandGUID", "deviceID", "aliases", "cgroupPath"),
	Elsewhere: slices.Concat(HintsFor(`"capabilities"`, "ips", "ip", "ipaddress", "ipaddresses", "address", "addresses", "staticips"),
		HintsFor(`"capabilities"`, "mac", "macaddress", "macaddresses", "macaddr")),
}

// ConfigKeys are the keys of Config.
var ConfigKeys = slices.Concat(NetworkKeys, KeyNames("master", "mtu", "linkInContainer", "statusCarrier", "checkpointDir"),
	[]Key{{Name: "dns", Nested: &Keys{Program: "the plugin", Accepted: KeyNames("nameservers", "domain", "search", "options")}}},
)

package cniplugin

import "slices"

// NetworkKeys are the keys of Network, and those that the specification and libcni put beside them. libcni
// adds "prevResult" and "runtimeConfig". The keys in "ipam" depend on the plugin that it names, and are not
// looked into here.
var NetworkKeys = []Key{
	{Name: "cniVersion"}, {Name: "cniVersions"}, {Name: "name"}, {Name: "type"}, {Name: "ipam"}, {Name: "capabilities", Nested: &CapabilityKeys}, {Name: "prevResult"}, {Name: "allowPersistentIPs"},
	{Name: "runtimeConfig", Nested: &Keys{Shared: true, Accepted: []Key{{Name: "mac"}, {Name: "ips"}, {Name: "ipRanges"}}}},
	{Name: "args", Nested: &Keys{Shared: true, Accepted: []Key{{Name: "cni", Nested: &Keys{Shared: true, Accepted: []Key{{Name: "ips"}}}}}}},
}

// CapabilityKeys are the keys of "capabilities": those that relink reads, and the others of CNI's CONVENTIONS.md, which another plugin may
// read. If one of relink's is misspelt, the runtime keeps what the pod asks for to itself, and the pod gets another address or MAC.
var CapabilityKeys = Keys{
	Program: `"capabilities"`,
	Accepted: []Key{
		{Name: "mac"}, {Name: "ips"}, {Name: "ipRanges"}, {Name: "portMappings"}, {Name: "bandwidth"}, {Name: "dns"}, {Name: "infinibandGUID"},
		{Name: "deviceID"}, {Name: "aliases"}, {Name: "cgroupPath"},
	},
	Elsewhere: slices.Concat(HintsFor(`"capabilities"`, "ips", "ip", "ipaddress", "ipaddresses", "address", "addresses", "staticips"),
		HintsFor(`"capabilities"`, "mac", "macaddress", "macaddresses", "macaddr")),
}

// ConfigKeys are the keys of Config.
var ConfigKeys = append(NetworkKeys[:len(NetworkKeys):len(NetworkKeys)],
	Key{Name: "dns", Nested: &Keys{Program: "the plugin", Accepted: []Key{{Name: "nameservers"}, {Name: "domain"}, {Name: "search"}, {Name: "options"}}}},
	Key{Name: "master"}, Key{Name: "mtu"}, Key{Name: "linkInContainer"}, Key{Name: "statusCarrier"}, Key{Name: "checkpointDir"},
)

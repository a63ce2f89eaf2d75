package cniplugin

// NetworkKeys are the keys of Network, and those that the specification and libcni put beside them. libcni
// adds "prevResult" and "runtimeConfig". The keys in "ipam" depend on the plugin that it names, and are not
// looked into here.
var NetworkKeys = []Key{
	{Name: "cniVersion"}, {Name: "cniVersions"}, {Name: "name"}, {Name: "type"}, {Name: "ipam"}, {Name: "capabilities"}, {Name: "prevResult"}, {Name: "allowPersistentIPs"},
	{Name: "runtimeConfig", In: &Keys{Shared: true, Known: []Key{{Name: "mac"}, {Name: "ips"}, {Name: "ipRanges"}}}},
	{Name: "args", In: &Keys{Shared: true, Known: []Key{{Name: "cni", In: &Keys{Shared: true, Known: []Key{{Name: "ips"}}}}}}},
}

// ConfigKeys are the keys of Config.
var ConfigKeys = append(NetworkKeys[:len(NetworkKeys):len(NetworkKeys)],
	Key{Name: "dns", In: &Keys{Of: "the plugin", Known: []Key{{Name: "nameservers"}, {Name: "domain"}, {Name: "search"}, {Name: "options"}}}},
	Key{Name: "master"}, Key{Name: "mtu"}, Key{Name: "linkInContainer"}, Key{Name: "statusCarrier"}, Key{Name: "checkpointDir"},
)

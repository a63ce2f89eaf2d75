package cniplugin

// NetworkKeys are those of Network, and those that the specification, libcni and the runtimes put
// beside them: "capabilities" and "args" are a configuration's, "prevResult" and "runtimeConfig" are
// injected by libcni. The keys in "ipam" are those of the plugin that it names.
var NetworkKeys = []Key{
	{Name: "cniVersion"}, {Name: "cniVersions"}, {Name: "name"}, {Name: "type"}, {Name: "ipam"}, {Name: "capabilities"}, {Name: "prevResult"},
	{Name: "runtimeConfig", In: &Keys{Shared: true, Known: []Key{{Name: "mac"}, {Name: "ips"}, {Name: "ipRanges"}}}},
	{Name: "args", In: &Keys{Shared: true, Known: []Key{{Name: "cni", In: &Keys{Shared: true, Known: []Key{{Name: "ips"}}}}}}},
}

// ConfigKeys are those of Config.
var ConfigKeys = append(NetworkKeys[:len(NetworkKeys):len(NetworkKeys)],
	Key{Name: "dns", In: &Keys{Of: "the plugin", Known: []Key{{Name: "nameservers"}, {Name: "domain"}, {Name: "search"}, {Name: "options"}}}},
	Key{Name: "master"}, Key{Name: "mtu"}, Key{Name: "linkInContainer"}, Key{Name: "statusCarrier"}, Key{Name: "checkpointDir"},
)

package ipam

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Keys are the keys of relink-ipam's section of a configuration, "ipam".
var Keys = cniplugin.Keys{
	Program: PluginName,
	Accepted: []cniplugin.Key{
		{Name: "type"}, {Name: "pool"}, {Name: "subnet"}, {Name: "rangeStart"}, {Name: "rangeEnd"}, {Name: "gateway"},
		{Name: "ranges", Nested: &rangeKeys}, {Name: "routes", Nested: &routeKeys}, {Name: "dataDir"}, {Name: "resolvConf"},
		{Name: "exclude"}, {Name: "sticky"}, {Name: "retain"}, {Name: "quarantine"}, {Name: "statusExhausted"},
		{Name: "conflictDetection", Nested: &detectionKeys}, {Name: "static", Nested: &staticKeys},
	},
	Elsewhere: slices.Concat(sectionWords, rangeWords, interfaceWords, []cniplugin.Hint{
		{Key: "range", Remedy: `a key of whereabouts; relink-ipam has "subnet"`},
		{Key: "ipranges", Remedy: `a key of whereabouts and of runtimeConfig; relink-ipam has "ranges"`},
		{Key: "networkname", Remedy: `a key of whereabouts; relink-ipam goes by the network's "name": remove it`},
		whereaboutsHint("datastore"), whereaboutsHint("kubernetes"), whereaboutsHint("configurationpath"), whereaboutsHint("logfile"),
		whereaboutsHint("loglevel"), whereaboutsHint("etcdhost"), whereaboutsHint("etcdusername"), whereaboutsHint("etcdpassword"),
		whereaboutsHint("enableoverlappingranges"), whereaboutsHint("sleepforrace"), whereaboutsHint("nodeslicesize"),
		whereaboutsHint("optimisticipam"), whereaboutsHint("reconcilercronexpression"),
		{Key: "omitranges", Remedy: `a key of whereabouts; relink-ipam has "exclude"`},
		{Key: "addresses", Remedy: `a key of static; relink-ipam has "ranges": reserve an address by relink ipam reserve`},
		{Key: "daemonsocketpath", Remedy: "a key of dhcp, which relink-ipam does not have: remove it"},
		{Key: "provide", Remedy: "a key of dhcp, which relink-ipam does not have: remove it"},
		{Key: "request", Remedy: "a key of dhcp, which relink-ipam does not have: remove it"},
	}),
}

var (
	// sectionWords and rangeWords are for words by which other tools and people name what a key of relink-ipam means.
	sectionWords = slices.Concat(
		cniplugin.HintsFor(PluginName, "pool", "poolname", "poolnames", "ippool", "ippools", "addresspool", "addresspools", "ipv4pools", "ipv6pools"),
		cniplugin.HintsFor(PluginName, "exclude", "excluded", "reserved"), cniplugin.HintsFor(PluginName, "retain", "retention"),
		cniplugin.HintsFor(PluginName, "conflictDetection", "dad", "duplicatedetection"))
	rangeWords = slices.Concat(
		cniplugin.HintsFor(PluginName, "subnet", "cidr", "cidrs", "network", "prefix"), cniplugin.HintsFor(PluginName, "gateway", "gw", "router"),
		cniplugin.HintsFor(PluginName, "rangeStart", "start", "startip"), cniplugin.HintsFor(PluginName, "rangeEnd", "end", "endip"))
	// interfaceWords are for keys of the interface plugin.
	interfaceWords = interfaceHints("dns", "master", "mtu", "mac", "mode", "vlan", "vlanid", "vlans", "vlantag", "vlanprotocol", "vlanname", "hostaccess", "bcqueuelen",
		"linkincontainer", "statuscarrier", "checkpointdir", "allowpersistentips", "vid", "tag")
)

func whereaboutsHint(key string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Remedy: "a key of whereabouts, which relink-ipam does not have: remove it"}
}

func interfaceHints(keys ...string) (hints []cniplugin.Hint) {
	for _, key := range keys {
		hints = append(hints, cniplugin.Hint{Key: key, Remedy: `a key of the interface plugin: write it beside "ipam", not in it`})
	}
	return hints
}

var rangeKeys = cniplugin.Keys{
	Program:  PluginName,
	Accepted: []cniplugin.Key{{Name: "subnet"}, {Name: "rangeStart"}, {Name: "rangeEnd"}, {Name: "gateway"}},
	Elsewhere: append(slices.Concat(rangeWords, interfaceWords), cniplugin.Hint{Key: "range", Remedy: `a key of whereabouts; relink-ipam has "subnet"`},
		sectionHint("exclude"), sectionHint("routes"), sectionHint("pool"), sectionHint("sticky"), sectionHint("retain"), sectionHint("quarantine"),
		sectionHint("datadir"), sectionHint("resolvconf"), sectionHint("statusexhausted"), sectionHint("conflictdetection"), sectionHint("static")),
}

func sectionHint(key string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Remedy: `a key of "ipam", for all ranges: write it beside "ranges"`}
}

// routeKeys are the keys of a route in the specification's result (types.Route).
var routeKeys = cniplugin.Keys{
	Program: PluginName,
	Accepted: []cniplugin.Key{
		{Name: "dst"}, {Name: "gw"}, {Name: "mtu"}, {Name: "advmss"}, {Name: "priority"}, {Name: "table"}, {Name: "scope"},
	},
	Elsewhere: slices.Concat(cniplugin.HintsFor("a route", "gw", "gateway", "via"), cniplugin.HintsFor("a route", "dst", "destination", "to"),
		cniplugin.HintsFor("a route", "priority", "metric")),
}

var detectionKeys = cniplugin.Keys{
	Program: PluginName, Accepted: []cniplugin.Key{{Name: "probes"}, {Name: "wait"}},
	Elsewhere: slices.Concat(cniplugin.HintsFor(PluginName, "probes", "count", "retries"), cniplugin.HintsFor(PluginName, "wait", "timeout", "interval")),
}

var staticKeys = cniplugin.Keys{Program: PluginName, Accepted: []cniplugin.Key{{Name: "namespaces"}}}

// networkKeys are the keys that relink-ipam reads beside its section. If another program executes relink-ipam, all other
// keys are for that program.
var networkKeys = cniplugin.Keys{Program: PluginName, Shared: true, Accepted: cniplugin.NetworkKeys}

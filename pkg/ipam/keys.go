package ipam

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Keys are the keys of relink-ipam's section of a configuration, "ipam".
var Keys = cniplugin.Keys{
	Program: PluginName,
	Accepted: append(cniplugin.KeyNames("type", "roam", "subnet", "rangeStart", "rangeEnd", "gateway", "store", "dataDir", "resolvConf", "exclude", "sticky", "retain",
		"quarantine", "statusExhausted"),
		cniplugin.Key{Name: "pool", Nested: &poolKeys}, cniplugin.Key{Name: "ranges", Nested: &rangeKeys}, cniplugin.Key{Name: "routes", Nested: &routeKeys},
		cniplugin.Key{Name: "conflictDetection", Nested: &detectionKeys}, cniplugin.Key{Name: "static", Nested: &staticKeys}),
	Elsewhere: slices.Concat(sectionWords, rangeWords, interfaceWords, whereaboutsRange,
		cniplugin.Hints(`a key of whereabouts and of runtimeConfig; relink-ipam has "ranges"`, "ipranges"),
		cniplugin.Hints(`a key of whereabouts; relink-ipam has "store"`, "networkname"),
		cniplugin.Hints("a key of whereabouts, which relink-ipam does not have: remove it", "datastore", "kubernetes", "configurationpath", "logfile", "loglevel",
			"etcdhost", "etcdusername", "etcdpassword", "enableoverlappingranges", "sleepforrace", "nodeslicesize", "optimisticipam", "reconcilercronexpression"),
		cniplugin.Hints(`a key of whereabouts; relink-ipam has "exclude"`, "omitranges"),
		cniplugin.Hints(`a key of static; relink-ipam has "ranges": reserve an address by relink ipam reserve`, "addresses"),
		cniplugin.Hints("a key of dhcp, which relink-ipam does not have: remove it", "daemonsocketpath", "provide", "request")),
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
	interfaceWords = cniplugin.Hints(`a key of the interface plugin: write it beside "ipam", not in it`, "dns", "master", "mtu", "mac", "mode", "vlan", "vlanid",
		"vlans", "vlantag", "vlanprotocol", "vlanname", "hostaccess", "bcqueuelen", "linkincontainer", "statuscarrier", "checkpointdir", "allowpersistentips", "vid", "tag")
	whereaboutsRange = cniplugin.Hints(`a key of whereabouts; relink-ipam has "subnet"`, "range")
)

var poolKeys = cniplugin.Keys{
	Program: PluginName, Accepted: cniplugin.KeyNames("oneOf"), Elsewhere: cniplugin.HintsFor(PluginName, "oneOf", "anyof", "name", "names", "pools"),
}

var rangeKeys = cniplugin.Keys{
	Program:  PluginName,
	Accepted: cniplugin.KeyNames("subnet", "rangeStart", "rangeEnd", "gateway"),
	Elsewhere: slices.Concat(rangeWords, interfaceWords, whereaboutsRange,
		cniplugin.Hints(`a key of "ipam", for all ranges: write it beside "ranges"`, "exclude", "routes", "pool", "roam", "sticky", "retain", "quarantine", "store", "datadir",
			"resolvconf", "statusexhausted", "conflictdetection", "static")),
}

// routeKeys are the keys of a route in the specification's result (types.Route).
var routeKeys = cniplugin.Keys{
	Program:  PluginName,
	Accepted: cniplugin.KeyNames("dst", "gw", "mtu", "advmss", "priority", "table", "scope"),
	Elsewhere: slices.Concat(cniplugin.HintsFor("a route", "gw", "gateway", "via"), cniplugin.HintsFor("a route", "dst", "destination", "to"),
		cniplugin.HintsFor("a route", "priority", "metric")),
}

var detectionKeys = cniplugin.Keys{
	Program: PluginName, Accepted: cniplugin.KeyNames("probes", "wait"),
	Elsewhere: slices.Concat(cniplugin.HintsFor(PluginName, "probes", "count", "retries"), cniplugin.HintsFor(PluginName, "wait", "timeout", "interval")),
}

var staticKeys = cniplugin.Keys{Program: PluginName, Accepted: cniplugin.KeyNames("namespaces")}

// NetworkKeys are the keys that relink-ipam reads beside its section. If another program executes relink-ipam, all other
// keys are for that program.
var NetworkKeys = cniplugin.Keys{Program: PluginName, Shared: true, Accepted: cniplugin.NetworkKeys}

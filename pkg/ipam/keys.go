package ipam

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Keys are the keys of relink-ipam's section of a configuration, "ipam".
var Keys = cniplugin.Keys{
	Of: PluginName,
	Known: []cniplugin.Key{
		{Name: "type"}, {Name: "pool"}, {Name: "subnet"}, {Name: "rangeStart"}, {Name: "rangeEnd"}, {Name: "gateway"},
		{Name: "ranges", In: &rangeKeys}, {Name: "routes", In: &routeKeys}, {Name: "dataDir"}, {Name: "resolvConf"},
		{Name: "exclude"}, {Name: "sticky"}, {Name: "retain"}, {Name: "quarantine"}, {Name: "statusExhausted"},
		{Name: "conflictDetection", In: &detectionKeys}, {Name: "static", In: &staticKeys},
	},
	Elsewhere: slices.Concat(sectionWords, rangeWords, ofInterface, []cniplugin.Hint{
		{Key: "range", Do: `a key of whereabouts; relink-ipam has "subnet"`},
		{Key: "ipranges", Do: `a key of whereabouts and of runtimeConfig; relink-ipam has "ranges"`},
		{Key: "networkname", Do: `a key of whereabouts; relink-ipam goes by the network's "name": remove it`},
		ofWhereabouts("datastore"), ofWhereabouts("kubernetes"), ofWhereabouts("configurationpath"), ofWhereabouts("logfile"),
		ofWhereabouts("loglevel"), ofWhereabouts("etcdhost"), ofWhereabouts("etcdusername"), ofWhereabouts("etcdpassword"),
		ofWhereabouts("enableoverlappingranges"), ofWhereabouts("sleepforrace"), ofWhereabouts("nodeslicesize"),
		ofWhereabouts("optimisticipam"), ofWhereabouts("reconcilercronexpression"),
		{Key: "omitranges", Do: `a key of whereabouts; relink-ipam has "exclude"`},
		{Key: "addresses", Do: `a key of static; relink-ipam has "ranges": reserve an address by relink ipam reserve`},
		{Key: "daemonsocketpath", Do: "a key of dhcp, which relink-ipam does not have: remove it"},
		{Key: "provide", Do: "a key of dhcp, which relink-ipam does not have: remove it"},
		{Key: "request", Do: "a key of dhcp, which relink-ipam does not have: remove it"},
	}),
}

var (
	// sectionWords and rangeWords are for words by which other tools and people name what a key of relink-ipam means.
	sectionWords = slices.Concat(
		cniplugin.Mean(PluginName, "pool", "poolname", "poolnames", "ippool", "ippools", "addresspool", "addresspools", "ipv4pools", "ipv6pools"),
		cniplugin.Mean(PluginName, "exclude", "excluded", "reserved"), cniplugin.Mean(PluginName, "retain", "retention"),
		cniplugin.Mean(PluginName, "conflictDetection", "dad", "duplicatedetection"))
	rangeWords = slices.Concat(
		cniplugin.Mean(PluginName, "subnet", "cidr", "cidrs", "network", "prefix"), cniplugin.Mean(PluginName, "gateway", "gw", "router"),
		cniplugin.Mean(PluginName, "rangeStart", "start", "startip"), cniplugin.Mean(PluginName, "rangeEnd", "end", "endip"))
	// ofInterface are for keys of the interface plugin.
	ofInterface = besideIPAM("dns", "master", "mtu", "mac", "mode", "vlan", "vlanid", "vlans", "vlantag", "vlanprotocol", "vlanname", "hostaccess", "bcqueuelen",
		"linkincontainer", "statuscarrier", "checkpointdir", "allowpersistentips", "vid", "tag")
)

func ofWhereabouts(key string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Do: "a key of whereabouts, which relink-ipam does not have: remove it"}
}

func besideIPAM(keys ...string) (all []cniplugin.Hint) {
	for _, key := range keys {
		all = append(all, cniplugin.Hint{Key: key, Do: `a key of the interface plugin: write it beside "ipam", not in it`})
	}
	return all
}

var rangeKeys = cniplugin.Keys{
	Of:    PluginName,
	Known: []cniplugin.Key{{Name: "subnet"}, {Name: "rangeStart"}, {Name: "rangeEnd"}, {Name: "gateway"}},
	Elsewhere: append(slices.Concat(rangeWords, ofInterface), cniplugin.Hint{Key: "range", Do: `a key of whereabouts; relink-ipam has "subnet"`},
		ofSection("exclude"), ofSection("routes"), ofSection("pool"), ofSection("sticky"), ofSection("retain"), ofSection("quarantine"),
		ofSection("datadir"), ofSection("resolvconf"), ofSection("statusexhausted"), ofSection("conflictdetection"), ofSection("static")),
}

func ofSection(key string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Do: `a key of "ipam", for all ranges: write it beside "ranges"`}
}

// routeKeys are the keys of a route in the specification's result (types.Route).
var routeKeys = cniplugin.Keys{
	Of: PluginName,
	Known: []cniplugin.Key{
		{Name: "dst"}, {Name: "gw"}, {Name: "mtu"}, {Name: "advmss"}, {Name: "priority"}, {Name: "table"}, {Name: "scope"},
	},
	Elsewhere: slices.Concat(cniplugin.Mean("a route", "gw", "gateway", "via"), cniplugin.Mean("a route", "dst", "destination", "to"),
		cniplugin.Mean("a route", "priority", "metric")),
}

var detectionKeys = cniplugin.Keys{
	Of: PluginName, Known: []cniplugin.Key{{Name: "probes"}, {Name: "wait"}},
	Elsewhere: slices.Concat(cniplugin.Mean(PluginName, "probes", "count", "retries"), cniplugin.Mean(PluginName, "wait", "timeout", "interval")),
}

var staticKeys = cniplugin.Keys{Of: PluginName, Known: []cniplugin.Key{{Name: "namespaces"}}}

// networkKeys are the keys that relink-ipam reads beside its section. If another program executes relink-ipam, all other
// keys are for that program.
var networkKeys = cniplugin.Keys{Of: PluginName, Shared: true, Known: cniplugin.NetworkKeys}

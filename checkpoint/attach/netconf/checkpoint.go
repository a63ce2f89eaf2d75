package netconf

import (
	"slices"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// CheckpointName is the plugin's name.
const CheckpointName = "relink-checkpoint"

// CheckpointVersions are the plugin's CNI versions. Older ones have no prevResult.
var CheckpointVersions = version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// CheckpointKeys are the plugin's keys. "ipam" and "dns" are allowed: some tools give them to every plugin of a
// list.
var CheckpointKeys = cniplugin.Keys{
	Program:  CheckpointName,
	Accepted: slices.Concat(cniplugin.NetworkKeys, cniplugin.KeyNames("dns", "checkpointDir")),
	Elsewhere: slices.Concat(ipamHints, interfaceHints(vlanSynonyms...), interfaceHints(masterSynonyms...), interfaceHints("master", "mode", "mtu", "mac", "vlan",
		"vlanid", "vlanprotocol", "vlanname", "bcqueuelen", "linkincontainer", "statuscarrier"),
		cniplugin.Hints("a key of relink-macvlan; after a stock plugin, use relink-host-access", "hostaccess")),
}

func interfaceHints(keys ...string) []cniplugin.Hint {
	return cniplugin.Hints("a key of the interface plugin: write it in that plugin's object of the list", keys...)
}

// Checkpoint reads relink-checkpoint's configuration, and returns everything that is wrong. It leaves "ipam" to the
// interface plugin.
func Checkpoint(b []byte, _ cniplugin.Args) (Request, []error) {
	var c chained
	errs := CheckpointKeys.Decode("", b, &c)
	return c.request(&errs), errs
}

// chained are the keys of every chained plugin.
type chained struct {
	cniplugin.Network
	CheckpointDir string `json:"checkpointDir"`
}

// request returns the keys without "ipam", which is the interface plugin's.
func (c chained) request(errs *cniplugin.Problems) Request {
	c.IPAM = cniplugin.IPAMSection{}
	config := cniplugin.Config{Network: c.Network, CheckpointDir: c.CheckpointDir}
	errs.Add(config.Problems()...)
	return Request{Config: config}
}

// NoInterface is the error of a plugin with that name that comes after no interface plugin.
func NoInterface(plugin string) error {
	return cniplugin.ConfigError("prevResult", cniplugin.Missing, plugin+" must come after an interface plugin in a list")
}

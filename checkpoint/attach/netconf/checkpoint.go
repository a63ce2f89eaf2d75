package netconf

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// CheckpointName is the plugin's.
const CheckpointName = "relink-checkpoint"

// CheckpointKeys are the plugin's keys. "ipam" and "dns" are allowed, as who writes a list may give
// all plugins the same.
var CheckpointKeys = cniplugin.Keys{
	Of:    CheckpointName,
	Known: append(slices.Clip(cniplugin.NetworkKeys), cniplugin.Key{Name: "dns"}, cniplugin.Key{Name: "checkpointDir"}),
	Elsewhere: append(slices.Clip(inIPAM), inInterface("master"), inInterface("mode"), inInterface("mtu"), inInterface("mac"),
		inInterface("vlan"), inInterface("vlanid"), inInterface("vlanprotocol"), inInterface("vlanname"), inInterface("bcqueuelen"),
		inInterface("linkincontainer"), inInterface("statuscarrier")),
}

func inInterface(key string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Do: "a key of the interface plugin: write it in that plugin's object of the list"}
}

// Checkpoint reads relink-checkpoint's configuration, and returns everything that is wrong. What the
// configuration has for an IPAM plugin is none of this plugin's.
func Checkpoint(b []byte) (cniplugin.Config, []error) {
	var c struct {
		cniplugin.Network
		CheckpointDir string `json:"checkpointDir"`
	}
	errs := decode(b, &CheckpointKeys, &c)
	config := cniplugin.Config{Network: c.Network, CheckpointDir: c.CheckpointDir}
	config.IPAM = cniplugin.Section{}
	return config, append(errs, config.Problems()...)
}

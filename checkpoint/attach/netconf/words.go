package netconf

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Words by which other tools and people name what a key of an interface plugin means, in small letters.
var (
	vlanWords = []string{"vlantag", "vlantags", "vlans", "vlanids", "vlannumber", "vid", "vids", "tag", "tagid", "dot1q"}
	// parentWords leave out what others write for themselves, such as "deviceID" of Multus.
	parentWords = []string{
		"device", "dev", "parent", "parentdevice", "parentinterface", "interface", "iface", "nic", "link", "uplink", "bond", "lowerdevice",
		"masterdevice", "masterinterface", "hostdevice", "hostinterface",
	}
)

// interfaceWords are the hints for the words, for a plugin that has the VLAN's ID in vlanKey.
func interfaceWords(of, vlanKey string) []cniplugin.Hint {
	return slices.Concat(cniplugin.Mean(of, vlanKey, vlanWords...), cniplugin.Mean(of, "master", parentWords...),
		cniplugin.Mean(of, "vlanProtocol", "vlanproto", "vlanethertype", "tpid"), cniplugin.Mean(of, "mtu", "mtusize", "linkmtu"))
}

// hints gives many keys the same remedy.
func hints(hint func(key string) cniplugin.Hint, keys ...string) (all []cniplugin.Hint) {
	for _, key := range keys {
		all = append(all, hint(key))
	}
	return all
}

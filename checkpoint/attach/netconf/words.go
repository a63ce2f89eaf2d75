package netconf

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Words by which other tools and people name what a key of an interface plugin means, in small letters.
var (
	vlanSynonyms = []string{"vlantag", "vlantags", "vlans", "vlanids", "vlannumber", "vid", "vids", "tag", "tagid", "dot1q"}
	// masterSynonyms leave out what others write for themselves, such as "deviceID" of Multus.
	masterSynonyms = []string{
		"device", "dev", "parent", "parentdevice", "parentinterface", "interface", "iface", "nic", "link", "uplink", "bond", "lowerdevice",
		"masterdevice", "masterinterface", "hostdevice", "hostinterface",
	}
)

// synonymHints are the hints for the words, for a plugin that has the VLAN's ID in vlanKey.
func synonymHints(program, vlanKey string) []cniplugin.Hint {
	return slices.Concat(cniplugin.HintsFor(program, vlanKey, vlanSynonyms...), cniplugin.HintsFor(program, "master", masterSynonyms...),
		cniplugin.HintsFor(program, "vlanProtocol", "vlanproto", "vlanethertype", "tpid"), cniplugin.HintsFor(program, "mtu", "mtusize", "linkmtu"))
}

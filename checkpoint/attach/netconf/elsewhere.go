package netconf

import (
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// ipamHints are the keys that belong in "ipam". Beside it nobody would read them.
var ipamHints = slices.Concat(ipamHintsFor("subnet", "range"), ipamHintsFor("pool", "pools", "addresspool"), ipamHintsFor("ranges"), ipamHintsFor("rangeStart"),
	ipamHintsFor("rangeEnd"), ipamHintsFor("store"), ipamHintsFor("dataDir"), ipamHintsFor("resolvConf"), ipamHintsFor("sticky"), ipamHintsFor("retain"), ipamHintsFor("quarantine"),
	ipamHintsFor("conflictDetection"), ipamHintsFor("statusExhausted"), ipamHintsFor("addresses"), ipamHintsFor("gateway"), ipamHintsFor("routes"),
	ipamHintsFor("exclude"), ipamHintsFor("static"))

// ipamHintsFor are the hints for the key of "ipam" and for other words for it.
func ipamHintsFor(name string, words ...string) []cniplugin.Hint {
	return cniplugin.Hints(`a key of the IPAM plugin: write "`+name+`" in "ipam"`, append(words, strings.ToLower(name))...)
}

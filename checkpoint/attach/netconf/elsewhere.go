package netconf

import (
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// ipamHints are the keys that belong in "ipam", and other words for them. Beside it nobody would read them.
var ipamHints = slices.Concat(ipamHintsFor("subnet", "range"), ipamHintsFor("pool", "pools", "addresspool"), ipamHintsForEach("ranges", "rangeStart", "rangeEnd", "store",
	"dataDir", "resolvConf", "sticky", "retain", "quarantine", "conflictDetection", "statusExhausted", "addresses", "gateway", "routes", "exclude", "static"))

// ipamHintsFor are the hints for the key of "ipam" and for other words for it.
func ipamHintsFor(name string, words ...string) []cniplugin.Hint {
	return cniplugin.Hints(`a key of the IPAM plugin: write "`+name+`" in "ipam"`, append(words, strings.ToLower(name))...)
}

func ipamHintsForEach(names ...string) (hints []cniplugin.Hint) {
	for _, name := range names {
		hints = append(hints, ipamHintsFor(name)...)
	}
	return hints
}

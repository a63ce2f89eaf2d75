package netconf

import (
	"strings"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// ipamHints are the keys that belong in "ipam". Beside it nobody would read them.
var ipamHints = func() (hints []cniplugin.Hint) {
	for _, key := range [][]string{
		{"subnet", "range"}, {"pool", "pools", "addresspool"}, {"ranges"}, {"rangeStart"}, {"rangeEnd"}, {"store"}, {"dataDir"}, {"resolvConf"}, {"sticky"},
		{"retain"}, {"roam"}, {"quarantine"}, {"conflictDetection"}, {"statusExhausted"}, {"addresses"}, {"gateway"}, {"routes"}, {"exclude"}, {"static"},
	} { // The key, and other words for it.
		hints = append(hints, cniplugin.Hints(`a key of the IPAM plugin: write "`+key[0]+`" in "ipam"`, append(key[1:], strings.ToLower(key[0]))...)...)
	}
	return hints
}()

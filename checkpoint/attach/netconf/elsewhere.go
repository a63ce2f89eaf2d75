package netconf

import "github.com/relink-cni/relink/pkg/cniplugin"

// ipamHints are the keys that belong in "ipam". Beside it nobody would read them.
var ipamHints = []cniplugin.Hint{
	ipamHint("subnet", "subnet"), ipamHint("ranges", "ranges"), ipamHint("rangestart", "rangeStart"), ipamHint("rangeend", "rangeEnd"),
	ipamHint("datadir", "dataDir"), ipamHint("resolvconf", "resolvConf"), ipamHint("sticky", "sticky"), ipamHint("retain", "retain"),
	ipamHint("quarantine", "quarantine"), ipamHint("conflictdetection", "conflictDetection"), ipamHint("statusexhausted", "statusExhausted"),
	ipamHint("addresses", "addresses"), ipamHint("gateway", "gateway"), ipamHint("routes", "routes"), ipamHint("exclude", "exclude"),
	ipamHint("pool", "pool"), ipamHint("pools", "pool"), ipamHint("addresspool", "pool"), ipamHint("static", "static"), ipamHint("range", "subnet"),
}

func ipamHint(key, name string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Remedy: `a key of the IPAM plugin: write "` + name + `" in "ipam"`}
}

package netconf

import "github.com/relink-cni/relink/pkg/cniplugin"

// inIPAM are the keys that belong in "ipam". Beside it nobody would read them.
var inIPAM = []cniplugin.Hint{
	ofIPAM("subnet", "subnet"), ofIPAM("ranges", "ranges"), ofIPAM("rangestart", "rangeStart"), ofIPAM("rangeend", "rangeEnd"),
	ofIPAM("datadir", "dataDir"), ofIPAM("resolvconf", "resolvConf"), ofIPAM("sticky", "sticky"), ofIPAM("retain", "retain"),
	ofIPAM("quarantine", "quarantine"), ofIPAM("conflictdetection", "conflictDetection"), ofIPAM("statusexhausted", "statusExhausted"),
	ofIPAM("addresses", "addresses"), ofIPAM("gateway", "gateway"), ofIPAM("routes", "routes"), ofIPAM("exclude", "exclude"),
	ofIPAM("pool", "pool"), ofIPAM("pools", "pool"), ofIPAM("addresspool", "pool"), ofIPAM("static", "static"), ofIPAM("range", "subnet"),
}

func ofIPAM(key, name string) cniplugin.Hint {
	return cniplugin.Hint{Key: key, Do: `a key of the IPAM plugin: write "` + name + `" in "ipam"`}
}

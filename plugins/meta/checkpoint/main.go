// Command relink-checkpoint is a CNI plugin that comes last in a list and remembers what the plugins before it have built.
package main

import (
	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

func main() {
	plugin := attach.Chained(netconf.CheckpointName, netconf.Checkpoint)
	cniplugin.Main(plugin.Name, plugin.Funcs(), netconf.CheckpointVersions)
}

// Command relink-host-access is a CNI plugin that comes after an interface plugin in a list. It makes the path between the pod and
// its node, and remembers what the plugins before it have built, as relink-checkpoint does.
package main

import (
	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

func main() {
	plugin := attach.Chained(netconf.HostAccessName, netconf.HostAccess)
	cniplugin.Main(plugin.Name, plugin.Funcs(), netconf.CheckpointVersions)
}

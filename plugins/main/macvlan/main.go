// Command relink-macvlan is a CNI plugin that attaches sandboxes by macvlan, and remembers how.
package main

import (
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

func main() {
	plugin := attach.Interface(netconf.MacvlanName, netstate.KindMacvlan, netconf.Macvlan)
	cniplugin.Main(plugin.Name, plugin.Funcs(), version.All)
}

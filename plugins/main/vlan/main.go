// Command relink-vlan is a CNI plugin that puts a VLAN device into the sandbox, and remembers how.
package main

import (
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

func main() {
	plugin := attach.Interface(netconf.VLANName, netstate.KindVLAN, netconf.VLAN)
	cniplugin.Main(plugin.Name, plugin.Funcs(), version.All)
}

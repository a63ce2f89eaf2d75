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
	plugin := attach.Plugin{Name: netconf.VLANName, Kind: netstate.KindVLAN, Parse: netconf.VLAN}
	cniplugin.Main(plugin.Name, plugin.Funcs(), version.All)
}

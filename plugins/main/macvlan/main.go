// Command relink-macvlan is a CNI plugin that attaches sandboxes by macvlan, and remembers how.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

func main() {
	plugin := attach.Plugin{Name: "relink-macvlan", Kind: netstate.KindMacvlan, Parse: parse}
	skel.PluginMainFuncs(plugin.Funcs(), version.All, cniplugin.About(plugin.Name))
}

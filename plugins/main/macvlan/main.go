// Command relink-macvlan is a CNI plugin that attaches sandboxes by macvlan, and remembers how.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach"
)

func main() {
	plugin := attach.Plugin{Name: "relink-macvlan", Parse: parse}
	skel.PluginMainFuncs(plugin.Funcs(), version.All, attach.About(plugin.Name))
}

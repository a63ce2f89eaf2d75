// Command relink-ipam is a CNI IPAM plugin that keeps addresses with their owners.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
)

func main() {
	skel.PluginMainFuncs(ipam.Funcs(), version.All, cniplugin.About(ipam.PluginName))
}

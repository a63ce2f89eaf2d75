// Command relink-ipam is a CNI IPAM plugin that keeps addresses with their owners.
package main

import (
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
)

func main() {
	cniplugin.Main(ipam.PluginName, ipam.Funcs(control.Client{}), version.All)
}

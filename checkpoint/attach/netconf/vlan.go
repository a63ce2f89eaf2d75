package netconf

import (
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// VLANName is the plugin's name.
const VLANName = "relink-vlan"

// VLANKeys are the plugin's keys.
var VLANKeys = cniplugin.Keys{
	Program:  VLANName,
	Accepted: slices.Concat(cniplugin.ConfigKeys, cniplugin.KeyNames("vlanId", "vlanProtocol")),
	Elsewhere: slices.Concat(ipamHints, synonymHints(VLANName, "vlanId"),
		cniplugin.Hints(`a key of relink-macvlan; relink-vlan has "vlanId"`, "vlan"),
		cniplugin.Hints("a key of relink-macvlan; a pod on a VLAN device has no host access", "hostaccess"),
		cniplugin.Hints("a key of relink-macvlan; the device has the pod's interface name: remove it", "vlanname"),
		cniplugin.Hints("a key of relink-macvlan, which relink-vlan does not have: remove it, or change the type", "mode"),
		cniplugin.Hints("a key of relink-macvlan, which relink-vlan does not have: remove it", "bcqueuelen"),
		cniplugin.Hints("a key of relink-macvlan; a VLAN device has its master's MAC: remove it", "mac")),
}

// vlan has the keys of the reference vlan plugin, with their meaning, and the
// protocol.
type vlan struct {
	cniplugin.Config
	VLANID       *int   `json:"vlanId"`
	VLANProtocol string `json:"vlanProtocol"`
}

// VLAN is relink-vlan's Reader.
func VLAN(b []byte, _ cniplugin.Args) (Request, []error) {
	var c vlan
	errs := VLANKeys.Decode("", b, &c)
	errs.Add(c.Problems()...)
	if len(c.Master) == 0 {
		errs.Refuse("master", cniplugin.Missing, "must name the device to put the VLAN on")
	}
	device := netstate.VLAN{}
	if c.VLANID == nil {
		errs.Refuse("vlanId", cniplugin.Missing, "must be the VLAN's ID, between 1 and 4094")
	} else {
		device.ID = *c.VLANID
		errs.Add(checkVLANID("vlanId", device.ID))
	}
	protocol, err := cniplugin.ParseVLANProtocol(c.VLANProtocol)
	errs.Add(err)
	device.Protocol = protocol
	return Request{Config: c.Config, Link: netstate.Link{Kind: netstate.KindVLAN, VLAN: &device}}, errs
}

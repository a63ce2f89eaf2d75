package netconf

import (
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// MacvlanName is the plugin's name.
const MacvlanName = "relink-macvlan"

// MacvlanKeys are the plugin's keys.
var MacvlanKeys = cniplugin.Keys{
	Program: MacvlanName,
	Accepted: slices.Concat(cniplugin.ConfigKeys, cniplugin.KeyNames("mode", "mac", "bcqueuelen", "vlan", "vlanProtocol", "vlanName"),
		[]cniplugin.Key{{Name: "hostAccess", Nested: &hostAccessKeys}}),
	Elsewhere: slices.Concat(ipamHints, synonymHints(MacvlanName, "vlan"), cniplugin.Hints(`a key of "hostAccess": write it in "hostAccess": { }`, "masquerade", "services", "preservesource"),
		cniplugin.HintsFor(MacvlanName, "mac", "macaddress", "macaddr", "hwaddr", "hwaddress"), cniplugin.HintsFor(MacvlanName, "mode", "macvlanmode"),
		cniplugin.HintsFor(MacvlanName, "vlanName", "vlandevice", "vlaninterface", "vlanifname"),
		cniplugin.Hints(`a key of relink-vlan; relink-macvlan has "vlan"`, "vlanid")),
}

// macvlan has the keys of the reference macvlan plugin, with their meaning, and those
// for a VLAN below.
type macvlan struct {
	cniplugin.Config
	Mode       string `json:"mode"`
	MAC        string `json:"mac"`
	BCQueueLen uint32 `json:"bcqueuelen"`

	VLAN         *int   `json:"vlan"`
	VLANProtocol string `json:"vlanProtocol"`
	VLANName     string `json:"vlanName"`

	HostAccess *hostAccess `json:"hostAccess"`
}

// Macvlan is relink-macvlan's Reader.
func Macvlan(b []byte, args cniplugin.Args) (Request, []error) {
	var c macvlan
	errs := MacvlanKeys.Decode("", b, &c)
	errs.Add(c.Problems()...)
	if c.Mode == "" {
		c.Mode = "bridge"
	}
	if !slices.Contains(netstate.MacvlanModes, c.Mode) {
		errs.Refuse("mode", c.Mode, "must be one of "+strings.Join(netstate.MacvlanModes, ", "))
	}
	mac, err := c.mac(args)
	errs.Add(err)
	vlan, wrong := c.parentVLAN()
	errs.Add(wrong...)
	access, wrong := c.HostAccess.options()
	if access != nil && c.IPAM.Type == "" {
		wrong = append(wrong, cniplugin.ConfigError("hostAccess", "true", `needs the pod's addresses: name an IPAM plugin in "ipam"`))
	}
	return Request{
		Config: c.Config,
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, MAC: mac,
			Macvlan: &netstate.Macvlan{Mode: c.Mode, BCQueueLen: c.BCQueueLen},
		},
		VLAN: vlan, HostAccess: access,
	}, append(errs, wrong...)
}

// mac returns the MAC that is asked for. The runtime's counts before that of CNI_ARGS, and that before the
// configuration's.
func (c macvlan) mac(args cniplugin.Args) (string, error) {
	switch {
	case c.RuntimeConfig.MAC != "":
		return cniplugin.ParseMAC("runtimeConfig.mac", c.RuntimeConfig.MAC)
	case args.MAC != "":
		return args.ParsedMAC()
	}
	return cniplugin.ParseMAC("mac", c.MAC)
}

func (c macvlan) parentVLAN() (*ParentVLAN, []error) {
	var errs cniplugin.Problems
	protocol, err := cniplugin.ParseVLANProtocol(c.VLANProtocol)
	errs.Add(err)
	if c.VLANName != "" {
		if err := attachment.ValidateIfName(c.VLANName); err != nil {
			errs.Refuse("vlanName", c.VLANName, err.Error())
		}
	}
	if c.VLAN == nil {
		if c.VLANProtocol != "" || c.VLANName != "" {
			errs.Refuse("vlan", cniplugin.Missing, "vlanProtocol and vlanName need the ID of a VLAN")
		}
		return nil, errs
	}
	errs.Add(checkVLANID("vlan", *c.VLAN))
	if c.LinkInContainer {
		errs.Refuse("vlan", *c.VLAN, "does not go with linkInContainer: the VLAN device is made on the host")
	}
	return &ParentVLAN{VLAN: netstate.VLAN{ID: *c.VLAN, Protocol: protocol}, Name: c.VLANName}, errs
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// config are the reference macvlan plugin's keys with their meaning, and those
// for a VLAN below.
type config struct {
	cniplugin.Config
	Mode       string `json:"mode"`
	MAC        string `json:"mac"`
	BCQueueLen uint32 `json:"bcqueuelen"`

	VLAN         *int   `json:"vlan"`
	VLANProtocol string `json:"vlanProtocol"`
	VLANName     string `json:"vlanName"`
}

func parse(b []byte, args cniplugin.Args) (attach.Request, error) {
	var c config
	if err := cniplugin.Decode(b, &c); err != nil {
		return attach.Request{}, err
	}
	if err := c.Validate(); err != nil {
		return attach.Request{}, err
	}
	if c.Mode == "" {
		c.Mode = "bridge"
	}
	if !slices.Contains(netstate.MacvlanModes, c.Mode) {
		return attach.Request{}, cniplugin.ConfigError("mode", c.Mode, "must be one of "+strings.Join(netstate.MacvlanModes, ", "))
	}
	mac, err := c.mac(args)
	if err != nil {
		return attach.Request{}, err
	}
	vlan, err := c.parentVLAN()
	if err != nil {
		return attach.Request{}, err
	}
	return attach.Request{
		Config: c.Config,
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, MAC: mac,
			Macvlan: &netstate.Macvlan{Mode: c.Mode, BCQueueLen: c.BCQueueLen},
		},
		VLAN: vlan,
	}, nil
}

// mac returns the MAC that is asked for: by the runtime, by CNI_ARGS, by the
// configuration, in this order.
func (c config) mac(args cniplugin.Args) (string, error) {
	switch {
	case c.RuntimeConfig.MAC != "":
		return cniplugin.ParseMAC("runtimeConfig.mac", c.RuntimeConfig.MAC)
	case args.MAC != "":
		mac, err := netstate.ParseMAC(args.MAC)
		if err != nil {
			return "", cniplugin.EnvError("CNI_ARGS", "MAC="+args.MAC, err.Error())
		}
		return mac, nil
	}
	return cniplugin.ParseMAC("mac", c.MAC)
}

func (c config) parentVLAN() (*attach.ParentVLAN, error) {
	if c.VLAN == nil {
		if c.VLANProtocol != "" || c.VLANName != "" {
			return nil, cniplugin.ConfigError("vlan", "missing", "vlanProtocol and vlanName need the ID of a VLAN")
		}
		return nil, nil
	}
	if *c.VLAN < netstate.MinVLANID || *c.VLAN > netstate.MaxVLANID {
		return nil, cniplugin.ConfigError("vlan", *c.VLAN, fmt.Sprintf("must be between %d and %d", netstate.MinVLANID, netstate.MaxVLANID))
	}
	if c.LinkInContainer {
		return nil, cniplugin.ConfigError("vlan", *c.VLAN, "does not go with linkInContainer: the VLAN parent is the host's")
	}
	protocol, err := cniplugin.ParseVLANProtocol(c.VLANProtocol)
	if err != nil {
		return nil, err
	}
	if c.VLANName != "" {
		if err := attachment.ValidateIfName(c.VLANName); err != nil {
			return nil, cniplugin.ConfigError("vlanName", c.VLANName, err.Error())
		}
	}
	return &attach.ParentVLAN{VLAN: netstate.VLAN{ID: *c.VLAN, Protocol: protocol}, Name: c.VLANName}, nil
}

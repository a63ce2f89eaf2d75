package main

import (
	"fmt"

	"github.com/relink-cni/relink/checkpoint/attach"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// config are the reference vlan plugin's keys with their meaning, and the
// protocol.
type config struct {
	cniplugin.Config
	VLANID       int    `json:"vlanId"`
	VLANProtocol string `json:"vlanProtocol"`
}

func parse(b []byte, _ cniplugin.Args) (attach.Request, error) {
	var c config
	if err := cniplugin.Decode(b, &c); err != nil {
		return attach.Request{}, err
	}
	if err := c.Validate(); err != nil {
		return attach.Request{}, err
	}
	if len(c.Master) == 0 {
		return attach.Request{}, cniplugin.ConfigError("master", "missing", "must name the device to put the VLAN on")
	}
	if c.VLANID < netstate.MinVLANID || c.VLANID > netstate.MaxVLANID {
		return attach.Request{}, cniplugin.ConfigError("vlanId", c.VLANID, fmt.Sprintf("must be between %d and %d", netstate.MinVLANID, netstate.MaxVLANID))
	}
	protocol, err := cniplugin.ParseVLANProtocol(c.VLANProtocol)
	if err != nil {
		return attach.Request{}, err
	}
	return attach.Request{
		Config: c.Config,
		Link:   netstate.Link{Kind: netstate.KindVLAN, VLAN: &netstate.VLAN{ID: c.VLANID, Protocol: protocol}},
	}, nil
}

package attach

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Status reports whether an ADD could work now: code 50 without a master, 51
// with one that can't send, and whatever the IPAM plugin says.
func (p Plugin) Status(args *skel.CmdArgs) error {
	c, err := p.begin(args)
	if err != nil {
		return err
	}
	return cniplugin.Join(c.masterStatus(), c.ipam.Status(context.Background()))
}

func (c *call) masterStatus() error {
	if c.LinkInContainer {
		return nil // STATUS is about no sandbox.
	}
	master, err := c.hostMaster()
	switch {
	case err != nil:
		return cniplugin.Error(types.ErrPluginNotAvailable, "%v", err)
	case !master.Up:
		return cniplugin.Error(types.ErrLimitedConnectivity, "master %s is down: set it up", master.Name)
	case !master.Carrier:
		return cniplugin.Error(types.ErrLimitedConnectivity, "master %s has no carrier", master.Name)
	}
	return nil
}

func (c *call) hostMaster() (netstate.LiveDevice, error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	defer host.Close()
	devices, err := host.Devices()
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	master, _, err := findMaster(host, devices, c.Master)
	return master, err
}

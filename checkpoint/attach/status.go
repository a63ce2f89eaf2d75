package attach

import (
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// Status fails if an ADD is certain to fail: code 50 if no master exists or no checkpoint can be
// kept, or iptables is missing that host access needs, and whatever the IPAM plugin says. Runtimes turn a failure into a node that is not ready,
// which evicts pods. So nothing counts that can pass by itself: neither a master that cannot send,
// unless the configuration asks for code 51, nor an ADD that waits for the first master of the list, nor
// a master that somebody has taken away on purpose and brings back (checkpoint.Store.Guarded).
func (p Plugin) Status(args *skel.CmdArgs) error {
	c, err := p.begin(args)
	if err != nil {
		return err
	}
	return cniplugin.Join(c.masterStatus(), storeStatus(c.store), c.accessStatus(), c.callIPAM(ipamPlugin.Status))
}

func (c *call) masterStatus() error {
	if c.plugin.isChained() || c.LinkInContainer || c.store.Guarded() {
		return nil // STATUS is about no sandbox.
	}
	master, err := c.hostMaster()
	coded := new(types.Error)
	switch {
	case errors.As(err, &coded):
		return cniplugin.Error(types.ErrPluginNotAvailable, "%v", err)
	case err != nil || !c.StatusCarrier:
		return nil // A kernel that could not be asked has not said no.
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
	master, err := parents.Read(host, c.Master)
	return master.LiveDevice, err
}

// storeStatus fails if no checkpoints can be kept.
func storeStatus(store *checkpoint.Store) error {
	err := store.CheckWritable()
	if err == nil || cniplugin.IsTransient(err) {
		return nil
	}
	return cniplugin.Error(types.ErrPluginNotAvailable, "%s", printable.Joined(err))
}

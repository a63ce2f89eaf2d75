package attach

import (
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/attach/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// master returns the master to build on, unless something speaks against it.
func (a *addition) master(ns *kernel.Namespace, devices netstate.Devices) (netstate.LiveDevice, error) {
	master, missing, err := parents.Master(ns, devices, a.Master)
	if err != nil {
		return master, err
	}
	if err := parents.CheckNotMember(devices, master); err != nil {
		return master, err
	}
	// What is in a sandbox is no other attachment's master.
	if len(missing) > 0 && !a.LinkInContainer {
		if err := a.checkFallback(fallback{network: a.Name, devices: devices, master: master, missing: missing}); err != nil {
			return master, err
		}
	}
	return master, nil
}

// checkFallback refuses a later master of the list while a checkpoint shows that the first is only
// away for a moment.
func (a *addition) checkFallback(f fallback) error {
	records, unreadable, err := a.store.List()
	if err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	if claims := liveClaims(f.claims(records)); len(claims) > 0 {
		return f.refusal(claims)
	}
	if len(unreadable) > 0 {
		// They would keep every pod from starting on a node that has no such master.
		fmt.Fprintf(os.Stderr, "%s: %s is taken in the place of %s, as no checkpoint speaks against it: %d can't be read, such as: %v\n",
			a.plugin.Name, f.master.Name, strings.Join(f.missing, ", "), len(unreadable), unreadable[0].Err)
	}
	return nil
}

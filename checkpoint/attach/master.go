package attach

import (
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
)

// master returns the master to build on, unless something speaks against it.
func (a *addition) master(ns *kernel.Namespace) (parents.Master, error) {
	master, err := parents.Read(ns, a.Master)
	if err == nil {
		err = a.checkMaster(ns, master)
	}
	return master, err
}

func (a *addition) checkMaster(ns *kernel.Namespace, master parents.Master) error {
	if err := parents.CheckNotMember(master.Devices, master.LiveDevice); err != nil {
		return err
	}
	// What is in a sandbox is no other attachment's master.
	if len(master.Missing) > 0 && !a.LinkInContainer {
		return a.checkFallback(ns, master)
	}
	return nil
}

// checkFallback refuses a later master of the list while a checkpoint shows that the first is only
// away for a moment.
func (a *addition) checkFallback(host *kernel.Namespace, master parents.Master) error {
	records, unreadable, err := a.store.List()
	if err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	f := fallback{network: a.Name, devices: master.Devices, master: master.LiveDevice, missing: master.Missing}
	if err := f.readParents(host, records); err != nil {
		return err
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

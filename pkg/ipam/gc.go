package ipam

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// GC gives up the addresses of attachments that the runtime does not list as valid, and whose network namespaces are
// proven gone. A runtime makes its list before it calls: the sandbox of an ADD since then is not in it. What is kept is
// said on stderr. A missing list is not an empty one: it is an error with code 7, and nothing is given up.
func (c *Call) GC(ctx context.Context) error {
	store, err := c.openStore()
	if err != nil {
		return err
	}
	valid, listed, err := cniplugin.ValidAttachments(c.args.StdinData)
	if err != nil {
		return err
	}
	if !listed {
		return cniplugin.ConfigError("cni.dev/valid-attachments", cniplugin.Missing, "must list the valid attachments; without the list every address is kept")
	}
	leases, err := store.List(ctx)
	if err != nil {
		return withCode(ignoreNotLeased(err))
	}
	// This can read all of /proc, so it comes before the store is locked. What an ADD changes meanwhile is kept.
	looking, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	unlisted := unlistedHolders(leases, c.config.Name, valid)
	evidence := c.prove(looking, unlisted)
	var ended []lease.SeenHolder
	var kept []string
	for _, g := range unlisted {
		e := evidence[g.Holder.Namespace]
		// A holder without the path of a namespace is not of an ADD of relink-ipam, because an ADD has CNI_NETNS: it was imported, and nothing
		// but the runtime's list tells of it.
		if e.Verdict == sandbox.VerdictGone || g.Holder.Namespace.Path == "" && g.Holder.Namespace.Inode == 0 {
			ended = append(ended, g)
		} else {
			kept = append(kept, fmt.Sprintf("%s of %s: %s", g.Address, g.Holder.Key(store.Network()), e.Reason))
		}
	}
	if message := cniplugin.KeptByGC(kept); message != "" {
		fmt.Fprintln(c.stderr, printable.Line(PluginName+": "+message))
	}
	return giveUp(ctx, store, ended, "its attachment is not valid any more")
}

// unlistedHolders are the holders on the network that the runtime does not list. A store can have those of other networks, and those of an
// earlier name of this one, which the runtime never lists.
func unlistedHolders(leases []lease.Lease, network string, valid map[types.GCAttachment]bool) (unlisted []lease.SeenHolder) {
	for _, l := range leases {
		for _, h := range l.Holders {
			if h.Key(l.Network).Network == network && !valid[types.GCAttachment{ContainerID: h.ContainerID, IfName: h.IfName}] {
				unlisted = append(unlisted, lease.SeenHolder{Address: l.Address, Holder: h})
			}
		}
	}
	return unlisted
}

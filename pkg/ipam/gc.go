package ipam

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
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
	store, _, err := c.prepareRelease()
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
	g := collection{network: c.config.Name, store: store.Network(), valid: valid}
	// This can read all of /proc, so it comes before the store is locked. What an ADD changes meanwhile is kept.
	looking, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	g.evidence = sandbox.Prove(looking, c.seesAll(), g.namespaces(leases)...)
	if message := cniplugin.KeptByGC(g.kept(leases)); message != "" {
		fmt.Fprintln(c.stderr, printable.Line(PluginName+": "+message))
	}
	return withCode(ignoreNotLeased(store.Collect(ctx, func(h lease.Holder) bool {
		due, _ := g.judge(h)
		return !due || !g.isAsked(h)
	})))
}

// collection is what a GC knows.
type collection struct {
	network, store string
	valid          map[types.GCAttachment]bool
	// evidence is what was found out about the namespaces of the holders that the runtime does not list.
	evidence map[attachment.Namespace]sandbox.Evidence
}

// isAsked says whether the GC is about the holder: the runtime does not list it, and its attachment is of the network. A store can have
// those of other networks, and those of an earlier name of this one.
func (g collection) isAsked(h lease.Holder) bool {
	return h.Key(g.store).Network == g.network && !g.valid[types.GCAttachment{ContainerID: h.ContainerID, IfName: h.IfName}]
}

// judge says whether a holder that the GC is about gives up what it has, and why not. A holder without the path of a namespace is not of
// an ADD of relink-ipam, because an ADD has CNI_NETNS: it was imported, and nothing but the runtime's list tells of it.
func (g collection) judge(h lease.Holder) (due bool, reason string) {
	e, looked := g.evidence[h.Namespace]
	if !looked {
		e.Reason = "it came after the look at the namespaces"
	}
	return e.Verdict == sandbox.VerdictGone || h.Namespace.Path == "" && h.Namespace.Inode == 0, e.Reason
}

// namespaces are those of the holders that may be given up.
func (g collection) namespaces(leases []lease.Lease) (namespaces []attachment.Namespace) {
	for _, l := range leases {
		for _, h := range l.Holders {
			if g.isAsked(h) {
				namespaces = append(namespaces, h.Namespace)
			}
		}
	}
	return namespaces
}

// kept says which holders keep their addresses although the runtime does not list them, and why.
func (g collection) kept(leases []lease.Lease) (kept []string) {
	for _, l := range leases {
		for _, h := range l.Holders {
			if due, reason := g.judge(h); g.isAsked(h) && !due {
				kept = append(kept, fmt.Sprintf("%s of %s: %s", l.Address, h.Key(g.store), reason))
			}
		}
	}
	return kept
}

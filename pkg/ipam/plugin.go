package ipam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// PluginName is the name of the plugin, as "ipam.type" has it.
const PluginName = "relink-ipam"

// Plugins are the IPAM plugins that a misspelt "ipam.type" is likely to mean.
var Plugins = []string{PluginName, "host-local", "static", "dhcp", "whereabouts"}

// Funcs returns the plugin's functions for cniplugin.Main. An ADD asks owners about the pod.
func Funcs(owners owner.Asker) skel.CNIFuncs {
	ctx := context.Background()
	wrap := func(f func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return f(ctx, args) }
	}
	add := func(ctx context.Context, args *skel.CmdArgs) error {
		result, cniVersion, err := Add(ctx, args, owners)
		if err != nil {
			return err
		}
		failpoint.Here("before printing")
		defer failpoint.Here("after printing")
		return types.PrintResult(result, cniVersion)
	}
	return skel.CNIFuncs{Add: wrap(add), Del: wrap(Del), Check: wrap(Check), Status: wrap(Status), GC: wrap(GC)}
}

// Add decodes the configuration and calls Call.Add, Call.Confirm and Call.ReleasePrevious. cniVersion is that of the
// configuration. A plugin that is executed does not learn whether the interface plugin's ADD succeeds. So ReleasePrevious comes
// at once: a sandbox that is proven gone needs no address either way.
func Add(ctx context.Context, args *skel.CmdArgs, owners owner.Asker) (_ *current.Result, cniVersion string, err error) {
	c, err := newCall(args, owners)
	if err != nil {
		return nil, "", err
	}
	c.standalone = true
	if err := c.canConfirm(); err != nil {
		return nil, c.config.CNIVersion, err
	}
	result, err := c.Add(ctx)
	if err == nil {
		err = c.Confirm(ctx, result)
	}
	if err != nil {
		return nil, c.config.CNIVersion, err
	}
	if err := c.ReleasePrevious(ctx); err != nil {
		fmt.Fprintf(c.stderr, "%s: %v\n", PluginName, err)
	}
	return result, c.config.CNIVersion, nil
}

// Del decodes the configuration and calls Call.Del.
func Del(ctx context.Context, args *skel.CmdArgs) error {
	return withDetachedCall(ctx, args, (*Call).Del)
}

// Check decodes as much of the configuration as it needs, and calls Call.Check.
func Check(ctx context.Context, args *skel.CmdArgs) error {
	return withDetachedCall(ctx, args, (*Call).Check)
}

// Status decodes the configuration and calls Call.Status.
func Status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := newCall(args, nil)
	if err != nil {
		return err
	}
	return c.Status(ctx)
}

// GC decodes the configuration and calls Call.GC.
func GC(ctx context.Context, args *skel.CmdArgs) error {
	return withDetachedCall(ctx, args, (*Call).GC)
}

// withDetachedCall makes a call for a DEL, a GC or a CHECK. It decodes no more of the configuration than they need.
func withDetachedCall(ctx context.Context, args *skel.CmdArgs, run func(*Call, context.Context) error) error {
	needed, err := cniplugin.ReadDelConfig(args.StdinData)
	if err != nil {
		return err
	}
	return run(New(args, needed.Network(), nil), ctx)
}

// newCall decodes the configuration.
func newCall(args *skel.CmdArgs, owners owner.Asker) (*Call, error) {
	if err := networkKeys.Check("", args.StdinData); err != nil {
		return nil, err
	}
	var n cniplugin.Network
	if err := cniplugin.Decode(args.StdinData, &n); err != nil {
		return nil, err
	}
	return New(args, n, owners), nil
}

// Add gives the attachment one address of each range set. All that it returns is on
// disk. A repeated ADD returns what the first did. The result has the form
// of the newest version.
func (c *Call) Add(ctx context.Context) (*current.Result, error) {
	n, store, err := c.prepare()
	if err != nil {
		return nil, err
	}
	if err := c.queryOwner(ctx, n); err != nil {
		return nil, err
	}
	if err := c.addAPIRequests(ctx, &n, store); err != nil {
		return nil, err
	}
	if err := n.checkStatic(); err != nil {
		return nil, err
	}
	r, err := c.request(n)
	if err != nil {
		return nil, err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: n.routes}
	if result.DNS, err = n.dns(); err != nil {
		return nil, err
	}
	leases, err := c.allocate(ctx, n, store, r)
	if err != nil {
		return nil, err
	}
	c.previousHolders = c.otherHolders(leases)
	if len(n.pools) > 0 {
		c.addPoolAddresses(result, leases, store.PoolAddresses())
	}
	for i, set := range n.sets {
		result.IPs = append(result.IPs, ipConfig(set, leases[i].Address))
	}
	for _, remark := range store.Remarks() {
		fmt.Fprintf(c.stderr, "%s: %s\n", PluginName, remark)
	}
	return result, nil
}

// refusalError returns the error of an ADD. If it is about an address that was asked for, it names the key that asks.
func (n network) refusalError(err error) error {
	var refused *lease.RefusedError
	if !errors.As(err, &refused) {
		return withCode(err)
	}
	requests := append(slices.Clone(n.requested), n.candidates...)
	reason := refused.Reason
	for _, q := range requests {
		if q.address == refused.First {
			reason += ", for which " + q.source + " asks"
		}
	}
	for _, q := range requests {
		if q.address == refused.Address {
			return q.refuse(reason)
		}
	}
	return withCode(err)
}

// releaseTimeout is how long a call looks for the sandboxes before: the new pod waits for it. What is not proven by then
// keeps its hold. Tests replace it.
var releaseTimeout = time.Second

// ReleasePrevious is called after an ADD that succeeded. It ends the hold of the owner's sandboxes before this one if they are proven
// gone. A sandbox that may be there holds its address until its DEL.
func (c *Call) ReleasePrevious(ctx context.Context) error {
	if len(c.previousHolders) == 0 {
		return nil
	}
	// This can read all of /proc, so it comes before the store is locked.
	var namespaces []attachment.Namespace
	for _, g := range c.previousHolders {
		namespaces = append(namespaces, g.Holder.Namespace)
	}
	looking, cancel := context.WithTimeout(ctx, c.releaseTimeout)
	defer cancel()
	proven := sandbox.ProvenGone(looking, c.seesAll(), namespaces...)
	ended := slices.DeleteFunc(slices.Clone(c.previousHolders), func(g lease.GoneHolder) bool { return !proven[g.Holder.Namespace] })
	if len(ended) == 0 {
		return nil
	}
	store, _, err := c.prepareRelease()
	if err != nil {
		return err
	}
	return giveUp(ctx, store, ended)
}

// giveUp has the holders give up their addresses. It is no error if one has done so meanwhile.
func giveUp(ctx context.Context, store *lease.Store, holders []lease.GoneHolder) error {
	err := store.GiveUp(ctx, holders...)
	if errors.Is(err, lease.ErrHolderChanged) {
		return nil
	}
	return withCode(ignoreNotLeased(err))
}

// otherHolders returns the holders of the leases, without the attachment itself.
func (c *Call) otherHolders(leases []lease.Lease) (before []lease.GoneHolder) {
	for _, l := range leases {
		for _, h := range l.Holders {
			if !h.IsAttachment(c.key()) {
				before = append(before, lease.GoneHolder{Address: l.Address, Holder: h, Reason: "its sandbox is gone, and the owner's next one is attached"})
			}
		}
	}
	return before
}

// Del gives up what the attachment holds. It is no error if the attachment holds nothing, if the network
// never gave anything, or if the ranges are not valid any more.
func (c *Call) Del(ctx context.Context) error {
	store, sticky, err := c.prepareRelease()
	if err != nil {
		return err
	}
	return withCode(ignoreNotLeased(store.Release(ctx, c.key(), sticky)))
}

// Status fails where no ADD works: with the code of a wrong configuration, or with code 50 for a store that can't be
// used. A runtime then makes the node NotReady, which evicts its pods. So a network without a free address
// fails it only if the configuration has "statusExhausted".
func (c *Call) Status(ctx context.Context) error {
	n, store, err := c.prepare()
	if err != nil {
		return err
	}
	if _, err := n.dns(); err != nil {
		return err
	}
	var judged []lease.RangeSet
	if c.section.StatusExhausted {
		judged = n.sets
	}
	full, err := store.Exhausted(ctx, judged)
	if err := store.Writable(); !cniplugin.IsTransient(err) {
		full = append(full, err)
	}
	if err := errors.Join(append(full, ignoreNotLeased(err))...); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "%s", printable.Joined(err))
	}
	return nil
}

func ipConfig(set lease.RangeSet, a netip.Addr) *current.IPConfig {
	r, _ := set.Find(a)
	return &current.IPConfig{
		Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), a.BitLen())},
		Gateway: r.Gateway.AsSlice(),
	}
}

// withCode gives an error of the store its CNI code.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrIOFailure
	switch {
	case errors.Is(err, lease.ErrBusy), errors.Is(err, lease.ErrMoved), errors.Is(err, lease.ErrExhausted), errors.Is(err, lease.ErrUnconfirmed), errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrInUse):
		code = types.ErrTryAgainLater
	case errors.Is(err, lease.ErrDamaged):
		code = types.ErrDecodingFailure
	case errors.Is(err, lease.ErrDir), errors.Is(err, lease.ErrForeign):
		code = types.ErrInvalidEnvironmentVariables
	}
	return cniplugin.Error(code, "%s: %v", PluginName, err)
}

// ignoreNotLeased drops the error of a network that never gave an address.
func ignoreNotLeased(err error) error {
	if errors.Is(err, lease.ErrNotLeased) {
		return nil
	}
	return err
}

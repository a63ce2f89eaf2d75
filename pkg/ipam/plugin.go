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
	"github.com/relink-cni/relink/pkg/sandbox"
)

// PluginName is the plugin's, in "ipam.type".
const PluginName = "relink-ipam"

// Funcs returns the plugin's entry points for skel.PluginMainFuncs.
func Funcs() skel.CNIFuncs {
	ctx := context.Background()
	with := func(f func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return f(ctx, args) }
	}
	add := func(ctx context.Context, args *skel.CmdArgs) error {
		result, cniVersion, err := Add(ctx, args)
		if err != nil {
			return err
		}
		failpoint.Here("before printing")
		defer failpoint.Here("after printing")
		return types.PrintResult(result, cniVersion)
	}
	return skel.CNIFuncs{Add: with(add), Del: with(Del), Check: with(Check), Status: with(Status), GC: with(GC)}
}

// Add is Call.Add for who has nothing of the call decoded. cniVersion is that of the
// configuration. Nobody tells who is executed whether the interface plugin's ADD succeeds. What is
// proven gone needs no address either way.
func Add(ctx context.Context, args *skel.CmdArgs) (_ *current.Result, cniVersion string, err error) {
	c, err := begin(args)
	if err != nil {
		return nil, "", err
	}
	result, err := c.Add(ctx)
	if err != nil {
		return nil, c.config.CNIVersion, err
	}
	if err := c.Settled(ctx); err != nil {
		fmt.Fprintf(c.stderr, "%s: %v\n", PluginName, err)
	}
	return result, c.config.CNIVersion, nil
}

// Del is Call.Del for who has nothing of the call decoded.
func Del(ctx context.Context, args *skel.CmdArgs) error {
	return release(args, func(c *Call) error { return c.Del(ctx) })
}

// Check is Call.Check for who has nothing of the call decoded.
func Check(ctx context.Context, args *skel.CmdArgs) error {
	return do(args, func(c *Call) error { return c.Check(ctx) })
}

// Status is Call.Status for who has nothing of the call decoded.
func Status(ctx context.Context, args *skel.CmdArgs) error {
	return do(args, func(c *Call) error { return c.Status(ctx) })
}

// GC is Call.GC for who has nothing of the call decoded.
func GC(ctx context.Context, args *skel.CmdArgs) error {
	return release(args, func(c *Call) error { return c.GC(ctx) })
}

func do(args *skel.CmdArgs, f func(*Call) error) error {
	c, err := begin(args)
	if err != nil {
		return err
	}
	return f(c)
}

// release is do for what gives addresses up: it decodes no more of the configuration than that
// needs.
func release(args *skel.CmdArgs, f func(*Call) error) error {
	needed, err := cniplugin.ReadDetached(args.StdinData)
	if err != nil {
		return err
	}
	return f(New(args, cniplugin.Network{Name: needed.Name, IPAM: needed.IPAM}))
}

// begin decodes the configuration.
func begin(args *skel.CmdArgs) (*Call, error) {
	if err := networkKeys.Check("", args.StdinData); err != nil {
		return nil, err
	}
	var n cniplugin.Network
	if err := cniplugin.Decode(args.StdinData, &n); err != nil {
		return nil, err
	}
	return New(args, n), nil
}

// Add gives the attachment one address of each range set. All that it returns is on
// disk. An ADD that is repeated returns what the first did. The result is in the form
// of the newest version.
func (c *Call) Add(ctx context.Context) (*current.Result, error) {
	n, env, store, err := c.prepare()
	if err != nil {
		return nil, err
	}
	r, err := c.request(n, env)
	if err != nil {
		return nil, err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: n.routes}
	if n.resolvConf != "" {
		if result.DNS, err = readResolvConf(n.resolvConf); err != nil {
			return nil, cniplugin.ConfigError("ipam.resolvConf", n.resolvConf, "must be a file that can be read: "+reason(err))
		}
	}
	given, err := store.Allocate(ctx, r)
	if err != nil {
		return nil, n.refused(err)
	}
	c.before = c.holdersBefore(given)
	for i, l := range given {
		result.IPs = append(result.IPs, ipConfig(n.sets[i], l.Address))
	}
	for _, remark := range store.Remarks() {
		fmt.Fprintf(c.stderr, "%s: %s\n", PluginName, remark)
	}
	if store.Began() {
		c.sayRenamed(ctx, store)
	}
	return result, nil
}

// refused returns the error of an ADD, by the key that asks for an address that can't be given.
func (n network) refused(err error) error {
	var refused *lease.RefusedError
	if errors.As(err, &refused) {
		for _, q := range n.requested {
			if q.address == refused.Address {
				return q.refuse(refused.Why)
			}
		}
	}
	return coded(err)
}

// sayRenamed says to the runtime's log, once, that the first ADD of a network may be that of a
// network by another name: the addresses that its pods hold would be given again.
func (c *Call) sayRenamed(ctx context.Context, store *lease.Store) {
	names, err := store.Renamed(ctx)
	if err != nil {
		return // The ADD is none the worse for it.
	}
	for _, old := range names {
		fmt.Fprintf(c.stderr, "%s: %s\n", PluginName, lease.RenamedRemark(old, c.config.Name))
	}
}

// settling bounds the search for the sandboxes before: a pod waits for it. What is not found out by then is
// kept.
const settling = time.Second

// Settled is for after an ADD: sandboxes of the owner that held what this one took over, and are proven
// gone, hold it no more. One that may be there does until its DEL.
func (c *Call) Settled(ctx context.Context) error {
	if len(c.before) == 0 {
		return nil
	}
	// This can read all of /proc, and so goes before the store is locked.
	var were []attachment.Namespace
	for _, h := range c.before {
		were = append(were, h.Namespace)
	}
	looking, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	proven := sandbox.Gone(looking, sandbox.SeesAllProcesses(), were...)
	gone := slices.DeleteFunc(slices.Clone(c.before), func(h lease.Holder) bool { return !proven[h.Namespace] })
	if len(gone) == 0 {
		return nil
	}
	store, _, err := c.prepareRelease()
	if err != nil {
		return err
	}
	return coded(ifAny(store.Settled(ctx, c.key(), func(h lease.Holder) bool {
		return slices.ContainsFunc(gone, func(g lease.Holder) bool {
			return h.ContainerID == g.ContainerID && h.IfName == g.IfName && h.Since.Equal(g.Since) && h.Namespace == g.Namespace
		})
	})))
}

// holdersBefore returns the holders of the leases but the attachment.
func (c *Call) holdersBefore(given []lease.Lease) (before []lease.Holder) {
	for _, l := range given {
		for _, h := range l.Holders {
			if h.ContainerID != c.args.ContainerID || h.IfName != c.args.IfName {
				before = append(before, h)
			}
		}
	}
	return before
}

// Del gives up what the attachment holds. An attachment that holds nothing, a network
// of which nothing was ever given and ranges that are not valid any more are no error.
func (c *Call) Del(ctx context.Context) error {
	store, sticky, err := c.prepareRelease()
	if err != nil {
		return err
	}
	return coded(ifAny(store.Release(ctx, c.key(), sticky)))
}

// Status fails, with code 50, where no ADD works: the configuration or the store can't be
// used. A runtime makes a node NotReady for that, which evicts its pods: that no address is free
// fails it only if the configuration says "statusExhausted".
func (c *Call) Status(ctx context.Context) error {
	n, _, store, err := c.prepare()
	if err != nil {
		return err
	}
	var judged []lease.RangeSet
	if c.section.StatusExhausted {
		judged = n.sets
	}
	full, err := store.Exhausted(ctx, judged)
	full = append(full, store.Writable())
	if err := errors.Join(append(full, ifAny(err))...); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "%v", err)
	}
	return nil
}

// GC gives up what attachments hold that the runtime does not call valid. Without a
// list of valid attachments, which is not the same as an empty one, it is an error
// and nothing is given up.
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
		return cniplugin.ConfigError("cni.dev/valid-attachments", cniplugin.Missing, "must list the attachments that are valid: every address is kept")
	}
	return coded(ifAny(store.Collect(ctx, func(a attachment.Key) bool {
		return valid[types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}]
	})))
}

func ipConfig(set lease.RangeSet, a netip.Addr) *current.IPConfig {
	r, _ := set.Find(a)
	return &current.IPConfig{
		Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), a.BitLen())},
		Gateway: r.Gateway.AsSlice(),
	}
}

// coded gives an error of the store its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrIOFailure
	switch {
	case errors.Is(err, lease.ErrBusy), errors.Is(err, lease.ErrMoved), errors.Is(err, lease.ErrRenaming), errors.Is(err, lease.ErrExhausted), errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrInUse):
		code = types.ErrTryAgainLater
	case errors.Is(err, lease.ErrDamaged):
		code = types.ErrDecodingFailure
	case errors.Is(err, lease.ErrDir):
		code = types.ErrInvalidEnvironmentVariables
	}
	return cniplugin.Error(code, "%s: %v", PluginName, err)
}

// ifAny makes it no error that nothing was ever given.
func ifAny(err error) error {
	if errors.Is(err, lease.ErrNone) {
		return nil
	}
	return err
}

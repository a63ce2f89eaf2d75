package ipam

import (
	"context"
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/printable"
)

// PluginName is the name of the plugin, as "ipam.type" has it.
const PluginName = "relink-ipam"

// Plugins are the IPAM plugins that a misspelt "ipam.type" is likely to mean.
var Plugins = []string{PluginName, "host-local", "static", "dhcp", "whereabouts"}

// Funcs returns the plugin's functions for cniplugin.Main. An ADD asks owners about the pod.
func Funcs(owners owner.Asker) skel.CNIFuncs {
	ctx := context.Background()
	detached := func(run func(*Call, context.Context) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return Detached(ctx, run, args) }
	}
	add := func(args *skel.CmdArgs) error {
		result, cniVersion, err := Add(ctx, args, owners)
		if err != nil {
			return err
		}
		failpoint.Here("before printing")
		defer failpoint.Here("after printing")
		return types.PrintResult(result, cniVersion)
	}
	status := func(args *skel.CmdArgs) error { return Status(ctx, args) }
	return skel.CNIFuncs{Add: add, Del: detached((*Call).Del), Check: detached((*Call).Check), Status: status, GC: detached((*Call).GC)}
}

// Add decodes the configuration, calls Call.Add, and commits the grant. cniVersion is that of the configuration. A plugin that is
// executed does not learn whether the interface plugin's ADD succeeds.
func Add(ctx context.Context, args *skel.CmdArgs, owners owner.Asker) (_ *current.Result, cniVersion string, err error) {
	c, err := newCall(args, owners)
	if err != nil {
		return nil, "", err
	}
	cniVersion = c.config.CNIVersion
	c.standalone = true
	if err := c.canConfirm(); err != nil {
		return nil, cniVersion, err
	}
	g, err := c.Add(ctx)
	if err == nil {
		err = g.Commit(ctx)
	}
	if err != nil {
		return nil, cniVersion, err
	}
	return g.Result, cniVersion, nil
}

// Status decodes the configuration and calls Call.Status.
func Status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := newCall(args, nil)
	if err != nil {
		return err
	}
	return c.Status(ctx)
}

// Detached makes a call for a DEL, a GC or a CHECK, and runs it. It decodes no more of the configuration than they need.
func Detached(ctx context.Context, run func(*Call, context.Context) error, args *skel.CmdArgs) error {
	needed, err := cniplugin.ReadDelConfig(args.StdinData)
	if err != nil {
		return err
	}
	return run(New(args, needed.Network(), nil), ctx)
}

// newCall decodes the configuration.
func newCall(args *skel.CmdArgs, owners owner.Asker) (*Call, error) {
	var n cniplugin.Network
	if err := cniplugin.FirstError(NetworkKeys.Decode("", args.StdinData, &n)); err != nil {
		return nil, err
	}
	return New(args, n, owners), nil
}

// refusalError returns the error of an ADD. If it is about an address that was asked for, it names the key that asks.
func (n network) refusalError(err error) error {
	var refused *lease.RefusedError
	if !errors.As(err, &refused) {
		return withCode(err)
	}
	for _, q := range append(slices.Clone(n.requested), n.candidates...) {
		if q.address == refused.Address {
			return q.refuse(refused.Reason)
		}
	}
	return withCode(err)
}

// Del gives up what the attachment holds. It is no error if the attachment holds nothing, if the network
// never gave anything, or if the ranges are not valid any more.
func (c *Call) Del(ctx context.Context) error {
	store, err := c.openStore()
	if err != nil {
		return err
	}
	return withCode(ignoreNotLeased(store.Release(ctx, c.key(), c.currentPolicy())))
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
	if !n.StatusExhausted {
		n.sets = nil
	}
	full, err := store.Exhausted(ctx, n.sets)
	if err := store.Writable(); !cniplugin.IsTransient(err) {
		full = append(full, err)
	}
	if err := errors.Join(append(full, ignoreNotLeased(err))...); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "%s", printable.Joined(err))
	}
	return nil
}

// withCode gives an error of the store its CNI code.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrIOFailure
	switch {
	case errors.Is(err, lease.ErrBusy), errors.Is(err, lease.ErrMoved), errors.Is(err, lease.ErrExhausted), errors.Is(err, lease.ErrUnconfirmed), errors.Is(err, lease.ErrUnchosen), errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrInUse):
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

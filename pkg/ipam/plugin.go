package ipam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
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

// Add gives the attachment one address of each range set. All that it returns is on
// disk. An ADD that is repeated returns what the first did. The result is in the form
// of the newest version, and cniVersion is that of the configuration.
func Add(ctx context.Context, args *skel.CmdArgs) (_ *current.Result, cniVersion string, err error) {
	c, err := begin(args)
	if err != nil {
		return nil, "", err
	}
	result, err := c.add(ctx)
	return result, c.cniVersion, err
}

func (c *call) add(ctx context.Context) (*current.Result, error) {
	r, err := c.request()
	if err != nil {
		return nil, err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: c.routes}
	if c.resolvConf != "" {
		if result.DNS, err = readResolvConf(c.resolvConf); err != nil {
			return nil, cniplugin.ConfigError("ipam.resolvConf", c.resolvConf, err.Error())
		}
	}
	var given []Lease
	err = c.store.update(ctx, func(l *leases) (err error) {
		given, err = l.allocate(r)
		return err
	})
	if err != nil {
		return nil, coded(err)
	}
	for i, lease := range given {
		result.IPs = append(result.IPs, ipConfig(c.sets[i], lease.Address))
	}
	return result, nil
}

// Del gives up what the attachment holds. An attachment that holds nothing, a network
// of which nothing was ever given and ranges that are not valid any more are no error.
func Del(ctx context.Context, args *skel.CmdArgs) error {
	store, key, err := beginDel(args)
	if err != nil {
		return err
	}
	return coded(ifAny(store.change(ctx, func(l *leases) error { return l.releaseAll(key) })))
}

// Check says whether the attachment holds every address that prevResult has of it.
func Check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := begin(args)
	if err != nil {
		return err
	}
	previous, err := previousAddresses(args)
	if err != nil {
		return err
	}
	var held []Lease
	err = c.store.view(ctx, func(l *leases) (err error) {
		held, err = l.heldBy(c.key())
		return err
	})
	if ifAny(err) != nil {
		return coded(err)
	}
	if wrong := notHeld(c.key(), previous, held); len(wrong) > 0 {
		return cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", PluginName, strings.Join(wrong, "; "))
	}
	return nil
}

// Status reports the range sets of which no address can be given, with code 50, as an
// ADD would fail.
func Status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := begin(args)
	if err != nil {
		return err
	}
	return c.status(ctx)
}

func (c *call) status(ctx context.Context) error {
	var full []error
	err := c.store.view(ctx, func(l *leases) error {
		for i, set := range c.sets {
			if ok, err := l.canGive(set); err != nil {
				return err
			} else if !ok {
				full = append(full, l.exhausted(i, set))
			}
		}
		return nil
	})
	full = append(full, ifAny(err))
	if err := errors.Join(full...); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "%v", err)
	}
	return nil
}

// GC gives up what attachments hold that the runtime does not call valid. Without a
// list of valid attachments, which is not the same as an empty one, it is an error
// and nothing is given up.
func GC(ctx context.Context, args *skel.CmdArgs) error {
	store, _, err := beginDel(args)
	if err != nil {
		return err
	}
	valid, listed, err := cniplugin.ValidAttachments(args.StdinData)
	if err != nil {
		return err
	}
	if !listed {
		return cniplugin.ConfigError("cni.dev/valid-attachments", "missing", "must list the attachments that are valid: every address is kept")
	}
	return coded(ifAny(store.change(ctx, func(l *leases) error { return l.collect(valid) })))
}

// call is one invocation for an attachment.
type call struct {
	network
	args  *skel.CmdArgs
	env   cniplugin.Args
	store *Store
}

func begin(args *skel.CmdArgs) (*call, error) {
	env, err := cniplugin.ParseArgs(args.Args)
	if err != nil {
		return nil, err
	}
	n, err := parse(args.StdinData, env)
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(n.dataDir, n.name)
	return &call{network: n, args: args, env: env, store: store}, coded(err)
}

// beginDel reads what a DEL needs of the configuration: no more, so that one that an
// ADD would refuse now can still give up.
func beginDel(args *skel.CmdArgs) (*Store, attachment.Key, error) {
	var c struct {
		Name string `json:"name"`
		IPAM struct {
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	if err := cniplugin.Decode(args.StdinData, &c); err != nil {
		return nil, attachment.Key{}, err
	}
	if err := checkPlace(c.Name, c.IPAM.DataDir); err != nil {
		return nil, attachment.Key{}, err
	}
	store, err := OpenStore(c.IPAM.DataDir, c.Name)
	return store, attachment.Key{Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName}, coded(err)
}

func (c *call) key() attachment.Key {
	return attachment.Key{Network: c.name, ContainerID: c.args.ContainerID, IfName: c.args.IfName}
}

func (c *call) request() (request, error) {
	key := c.key()
	if err := key.Validate(); err != nil {
		return request{}, cniplugin.Error(types.ErrInvalidEnvironmentVariables, "%v", err)
	}
	owner := c.env.Pod.Owner()
	if c.policy.Sticky && owner == (attachment.Owner{}) {
		return request{}, cniplugin.EnvError("CNI_ARGS", c.args.Args, `must have K8S_POD_NAMESPACE and K8S_POD_NAME: with "sticky": "pod" an address is the pod's`)
	}
	return request{
		attachment: key, owner: owner, podUID: c.env.Pod.UID,
		sets: c.sets, requested: c.requested, policy: c.policy,
	}, nil
}

func ipConfig(set RangeSet, a netip.Addr) *current.IPConfig {
	r, _ := set.Find(a)
	return &current.IPConfig{
		Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), a.BitLen())},
		Gateway: r.Gateway.AsSlice(),
	}
}

// previousAddresses returns those that prevResult has of the interface: other plugins
// of a list may have added interfaces of their own.
func previousAddresses(args *skel.CmdArgs) ([]netip.Addr, error) {
	var c types.NetConf
	if err := cniplugin.Decode(args.StdinData, &c); err != nil {
		return nil, err
	}
	if c.RawPrevResult == nil {
		return nil, nil
	}
	wrong := func(err error) error {
		return cniplugin.ConfigError("prevResult", err.Error(), "must be the result of the ADD")
	}
	if err := version.ParsePrevResult(&c); err != nil {
		return nil, wrong(err)
	}
	result, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, wrong(err)
	}
	var all []netip.Addr
	for _, ip := range result.IPs {
		if ip == nil || slices.Contains(result.Interfaces, nil) {
			return nil, wrong(errors.New("it has an address or an interface that is null"))
		}
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(result.Interfaces) && result.Interfaces[*i].Name != args.IfName {
			continue
		}
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, wrong(fmt.Errorf("%s is no address", ip.Address.IP))
		}
		all = append(all, a.Unmap())
	}
	return all, nil
}

// notHeld says which of the previous addresses the attachment does not hold.
func notHeld(key attachment.Key, previous []netip.Addr, held []Lease) []string {
	if len(held) == 0 {
		return []string{key.String() + " holds no address"}
	}
	var wrong []string
	for _, a := range previous {
		if !slices.ContainsFunc(held, func(l Lease) bool { return l.Address == a }) {
			wrong = append(wrong, fmt.Sprintf("%s does not hold %s", key, a))
		}
	}
	return wrong
}

// coded gives an error of the store its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	var has *types.Error
	switch {
	case errors.As(err, &has):
		return has
	case errors.Is(err, ErrBusy), errors.Is(err, ErrExhausted), errors.Is(err, ErrTaken):
		return cniplugin.Error(types.ErrTryAgainLater, "%s: %v", PluginName, err)
	case errors.Is(err, ErrDamaged):
		return cniplugin.Error(types.ErrDecodingFailure, "%s: %v", PluginName, err)
	}
	return cniplugin.Error(types.ErrIOFailure, "%s: %v", PluginName, err)
}

// ifAny makes it no error that nothing was ever given.
func ifAny(err error) error {
	if errors.Is(err, ErrNone) {
		return nil
	}
	return err
}

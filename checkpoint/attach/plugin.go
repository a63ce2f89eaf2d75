package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/printable"
)

// Plugin is an interface plugin, or one that comes after an interface plugin in a list. Its configuration says what to build.
// How to build it is the same for all.
type Plugin struct {
	// Name is the plugin's, such as relink-macvlan.
	Name string
	// Kind is the kind of the links that it makes (netstate.KindMacvlan, ...). It is empty for a chained plugin: that one
	// remembers what the earlier plugins of the list have built. relink-checkpoint changes nothing in the sandbox.
	// relink-host-access adds host access.
	Kind string
	// Parse reads the plugin's configuration for an ADD and a STATUS.
	Parse netconf.Reader
	// add makes the attachment. delegate returns the IPAM plugin, and is nil for a chained plugin. A chained plugin links neither what
	// makes links nor what gives addresses.
	add      func(*call) error
	delegate func(*call) ipamPlugin
}

// ipamPlugin is what every call but an ADD needs of an IPAM plugin.
type ipamPlugin interface {
	Del(context.Context) error
	Check(context.Context) error
	Status(context.Context) error
	GC(context.Context) error
}

// Interface returns an interface plugin.
func Interface(name, kind string, parse netconf.Reader) Plugin {
	return Plugin{Name: name, Kind: kind, Parse: parse, add: (*call).addInterface, delegate: func(c *call) ipamPlugin { return c.ipam }}
}

// Chained returns a chained plugin.
func Chained(name string, parse netconf.Reader) Plugin {
	return Plugin{Name: name, Parse: parse, add: (*call).addChained}
}

// callIPAM calls the IPAM plugin, if there is one.
func (c *call) callIPAM(run func(ipamPlugin, context.Context) error) error {
	if c.plugin.isChained() {
		return nil
	}
	return run(c.plugin.delegate(c), context.Background())
}

// isChained says that the plugin comes after an interface plugin, which has what "ipam" names.
func (p Plugin) isChained() bool { return p.Kind == "" }

// Funcs returns the plugin's entry points for skel.PluginMainFuncs.
func (p Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: p.Add, Del: p.Del, Check: p.Check, Status: p.Status, GC: p.GC}
}

// call is one call of the plugin for an attachment.
type call struct {
	netconf.Request
	plugin Plugin
	args   *skel.CmdArgs
	env    cniplugin.Args
	store  *checkpoint.Store
	ipam   delegate.IPAM
	// host and sandbox are open during an ADD, a CHECK and a DEL. sandbox is nil in a DEL whose sandbox is gone.
	host, sandbox *kernel.Namespace
	// parentLock is an ADD's hold on the parents of the node, until the checkpoint that names them is saved.
	parentLock *checkpoint.ParentLock
	// hostEnd is the host's end that relink-host-access adds to the result, nil for none.
	hostEnd *current.Interface
}

func (p Plugin) begin(args *skel.CmdArgs) (*call, error) {
	env, err := cniplugin.ParseArgs(args.Args)
	if err != nil {
		return nil, err
	}
	request, errs := p.Parse(args.StdinData, env)
	if err := cniplugin.FirstError(errs); err != nil {
		return nil, err
	}
	store, err := netconf.OpenStore(request.Config)
	if err != nil {
		return nil, err
	}
	request.Link.Name = args.IfName
	return &call{
		Request: request, plugin: p, args: args, env: env, store: store,
		ipam: delegate.New(args, request.Network, control.Client{}),
	}, nil
}

// beginRecorded is begin for a CHECK, a GC and a DEL. The checkpoint says what was built, so it reads no more of the configuration than
// cniplugin.DelConfig, and nobody is asked about owners. A configuration that an ADD would refuse now can still be detached.
func (p Plugin) beginRecorded(args *skel.CmdArgs, detaches bool) (*call, error) {
	read, err := cniplugin.ReadDelConfig(args.StdinData)
	if err != nil {
		return nil, err
	}
	if p.isChained() { // What "ipam" names is the interface plugin's.
		read.IPAM = cniplugin.IPAMSection{}
	}
	config, err := read.Config()
	var store *checkpoint.Store
	if err == nil {
		store, err = netconf.OpenStore(config)
	}
	if err != nil && !detaches {
		return nil, err
	}
	if err != nil { // No ADD has remembered anything there. The rest still has to go.
		store, err = netconf.OpenStore(cniplugin.Config{})
	}
	if err != nil {
		store = checkpoint.OpenStore(checkpoint.DefaultDir)
	}
	return &call{
		Request: netconf.Request{Config: config}, plugin: p, args: args, store: store, ipam: delegate.New(args, config.Network, nil),
	}, nil
}

// warn writes a line for the administrator.
func (p Plugin) warn(format string, args ...any) {
	fmt.Fprintln(os.Stderr, printable.Line(p.Name+": "+fmt.Sprintf(format, args...)))
}

func (c *call) key() attachment.Key {
	return attachment.Key{Network: c.Name, ContainerID: c.args.ContainerID, IfName: c.args.IfName}
}

// exclusively calls f while every other operation is kept off the sandbox. It refuses what no name of a file can be made of.
func (c *call) exclusively(f func(context.Context) error) error {
	if err := c.key().Validate(); err != nil {
		return cniplugin.Error(types.ErrInvalidEnvironmentVariables, "%v", err)
	}
	ctx := context.Background()
	unlock, err := c.store.Lock(ctx, c.args.ContainerID)
	if err != nil {
		return lockError(err)
	}
	defer unlock()
	defer c.close()
	return f(ctx)
}

// attach takes the steps of an ADD. If one fails, what undo has is taken back.
func (c *call) attach(steps func(ctx context.Context, undo *cniplugin.Undo) error) error {
	return c.exclusively(func(ctx context.Context) (err error) {
		if err := c.open(); err != nil {
			return err
		}
		if c.parentLock, err = c.store.LockParents(ctx); err != nil {
			return lockError(err)
		}
		defer c.parentLock.Release()
		var undo cniplugin.Undo
		if err = steps(ctx, &undo); err != nil {
			err = cniplugin.Join(err, undo.Run())
		}
		return err
	})
}

// lockError makes the runtime try again if somebody else held the lock during the whole wait.
func lockError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, checkpoint.ErrBusy):
		return cniplugin.Error(types.ErrTryAgainLater, "%v for more than %s", err, flock.DefaultTimeout)
	}
	return cniplugin.Error(types.ErrIOFailure, "%v", err)
}

// open opens CNI_NETNS and the host's namespace. The path must be absolute, so that it still means the same in the
// record. The record has the path without links: the agent's container lacks them. The caller closes the call, also after an error.
func (c *call) open() (err error) {
	if !filepath.IsAbs(c.args.Netns) {
		return cniplugin.EnvError("CNI_NETNS", c.args.Netns, "must be an absolute path")
	}
	path := identity.Resolve(c.args.Netns)
	c.sandbox, err = kernel.Open(path)
	switch {
	case errors.Is(err, kernel.ErrNoNamespace):
		return cniplugin.EnvError("CNI_NETNS", c.args.Netns, "must be the path of a network namespace: "+strings.TrimPrefix(err.Error(), path+": "))
	case err == nil:
		c.host, err = kernel.OpenHost()
	}
	return err
}

// close closes the namespaces that are open.
func (c *call) close() {
	for _, ns := range []*kernel.Namespace{c.sandbox, c.host} {
		if ns != nil {
			ns.Close()
		}
	}
}

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// addHostAccess makes the path between the pod and its node. It returns what the checkpoint has of it. live is the pod's interface.
func (c *call) addHostAccess(ctx context.Context, host, sandbox *kernel.Namespace, live netstate.Interface, undo *cniplugin.Undo) (*hostaccess.Access, error) {
	target := hostends.Target{Store: c.store, Key: c.key(), Pod: c.env.Pod, Interface: live, Host: host, Sandbox: sandbox}
	recorded, err := hostends.AddPath(ctx, target, *c.HostAccess, undo)
	return recorded, c.accessError(err)
}

// accessKey is the place of a key of host access in the configuration: relink-host-access has it beside its other keys.
func (c *call) accessKey(key string) string {
	if c.plugin.Name == netconf.HostAccessName {
		return key
	}
	return "hostAccess." + key
}

// accessRefused says that the pod cannot have host access.
func (c *call) accessRefused(reason string) error {
	if c.plugin.Name == netconf.HostAccessName {
		return cniplugin.ConfigError("type", c.plugin.Name, reason)
	}
	var config struct {
		HostAccess json.RawMessage `json:"hostAccess"`
	}
	_ = json.Unmarshal(c.args.StdinData, &config) // It was read before.
	return cniplugin.ConfigError("hostAccess", cniplugin.RawValue(config.HostAccess), reason)
}

// accessError gives an error of host access its code.
func (c *call) accessError(err error) error {
	var lostRoute *hostends.LostRouteError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hostaccess.ErrTaken) && c.HostAccess != nil:
		return cniplugin.ConfigError(c.accessKey("ifName"), c.HostAccess.Name, "the sandbox has a device of that name already: choose another one")
	case errors.As(err, &lostRoute):
		return cniplugin.ConfigError(fmt.Sprintf("%s[%d]", c.accessKey(lostRoute.Key), lostRoute.Index), lostRoute.Network.String(), lostRoute.Reason)
	case errors.Is(err, hostends.ErrNoAddress), errors.Is(err, hostends.ErrOtherPath):
		return c.accessRefused(err.Error())
	case errors.Is(err, hostaccess.ErrLongName):
		return cniplugin.ConfigError("name", c.Name, "too long for hostAccess: the alias of a device has it")
	case errors.As(err, new(*fs.PathError)):
		return cniplugin.Error(types.ErrIOFailure, "host access: %s", printable.Joined(err))
	case errors.Is(err, netfilter.ErrNotInstalled):
		return cniplugin.Error(types.ErrInvalidEnvironmentVariables, "host access: %s", printable.Joined(err))
	case errors.Is(err, checkpoint.ErrBusy), errors.Is(err, hostaccess.ErrAddressTaken), netfilter.IsTransient(err):
		return cniplugin.Error(types.ErrTryAgainLater, "host access: %s", printable.Joined(err))
	}
	return fmt.Errorf("host access: %w", err)
}

// removeHostAccess takes away the host access of the attachment, also what a killed ADD left without a checkpoint.
func (c *call) removeHostAccess(ctx context.Context, recorded *checkpoint.Record) error {
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	name := hostaccess.HostName(c.key())
	exists, err := host.Exists(name)
	if err != nil {
		return err
	}
	hadAccess := recorded != nil && recorded.HostAccess != nil
	// A kill can have left a rule if there is a pair that no record names, or if there is no record. Otherwise the record tells.
	unknown := !hadAccess && (exists || recorded == nil)
	masquerades := c.masquerades || hadAccess && recorded.HostAccess.Masquerade || unknown && len(c.store.MasqueradeFamilies()) > 0
	// A killed DEL can have left what all pods share.
	if !exists && !hadAccess && !masquerades && !c.store.HadHostAccess() {
		return nil
	}
	if hadAccess && recorded.HostAccess.PreserveSource {
		c.clearPod(recorded)
	}
	keptErr, err := hostends.RemovePath(ctx, c.store, host, name, masquerades)
	if keptErr != nil {
		// The runtime would call the DEL again for ever, and the address would stay held.
		fmt.Fprintln(os.Stderr, printable.Line(c.plugin.Name+": rules of iptables stay until the next GC or restore that can read them: host access: "+printable.Joined(keptErr)))
	}
	return c.accessError(err)
}

// clearPod takes away the policy rules that the sandbox keeps without the pair. The chains of iptables end with the sandbox: they do
// nothing without the policy rules, and to delete them takes ten times as long as the rest of the DEL.
func (c *call) clearPod(recorded *checkpoint.Record) {
	sandbox, err := kernel.OpenSame(recorded.Namespace)
	if err != nil {
		return
	}
	defer sandbox.Close()
	_ = hostaccess.ClearRules(sandbox) // They end with the sandbox, too.
}

// checkAccess returns what cuts the path of host access in the pod. What else differs costs no pod its life: `relink check` tells it, and the
// agent or `relink restore` puts right what follows from the node's addresses.
func (c *call) checkAccess(sandbox *kernel.Namespace, recorded checkpoint.Record) (breaks []string, err error) {
	if recorded.HostAccess == nil {
		return nil, nil
	}
	defer func() { err = c.accessError(err) }()
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	node, err := hostaccess.ReadNode(host)
	if err != nil {
		return nil, err
	}
	pod := recorded.HostAccessPod(host, sandbox)
	pod.WithoutFilter = true
	found, err := pod.Inspect(node)
	return found.Breaks, err
}

// hostEnd is the host's end in a result (CNI specification, "interfaces": without "sandbox" it is in the host).
func hostEnd(access *hostaccess.Access) *current.Interface {
	return &current.Interface{Name: access.HostName, Mac: access.MAC, Mtu: access.MTU}
}

// sweepHostAccess takes away what killed operations have left of host access in the host. A pair is not among that: it goes with its
// sandbox, and a sandbox that lives may need it.
func sweepHostAccess(ctx context.Context, store *checkpoint.Store) error {
	_, err := hostends.Sweep(ctx, store, false)
	return new(call).accessError(err)
}

// accessStatus fails if the node lacks what each ADD needs for host access.
func (c *call) accessStatus() error {
	if c.HostAccess == nil || !c.HostAccess.PreserveSource && !c.HostAccess.Masquerade {
		return nil
	}
	if err := hostaccess.HasIPTables(); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "host access: %s", printable.Joined(err))
	}
	return nil
}

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// addHostAccess makes the path between the pod and its node. It returns what the checkpoint has of it. live is the pod's interface.
func (c *call) addHostAccess(ctx context.Context, live netstate.Interface, undo *cniplugin.Undo) (*hostaccess.Access, error) {
	target := hostends.Target{Store: c.store, Key: c.key(), Pod: c.env.Pod, Interface: live, Host: c.host, Sandbox: c.sandbox}
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
	var code uint
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hostaccess.ErrTaken) && c.HostAccess != nil:
		return cniplugin.ConfigError(c.accessKey("ifName"), c.HostAccess.Name, "the sandbox has a device of that name already: choose another one")
	case errors.As(err, &lostRoute):
		return cniplugin.ConfigError(fmt.Sprintf("%s[%d]", c.accessKey(lostRoute.Key), lostRoute.Index), lostRoute.Network.String(), lostRoute.Reason)
	case errors.Is(err, hostaccess.ErrNoAddress), errors.Is(err, hostends.ErrOtherPath):
		return c.accessRefused(err.Error())
	case errors.Is(err, hostaccess.ErrLongName):
		return cniplugin.ConfigError("name", c.Name, "too long for hostAccess: the alias of a device has it")
	case errors.As(err, new(*fs.PathError)):
		code = types.ErrIOFailure
	case errors.Is(err, netfilter.ErrNotInstalled), errors.Is(err, hostaccess.ErrNoIPv6):
		code = types.ErrInvalidEnvironmentVariables
	case errors.Is(err, checkpoint.ErrBusy), errors.Is(err, hostaccess.ErrAddressTaken), netfilter.IsTransient(err):
		code = types.ErrTryAgainLater
	default:
		return fmt.Errorf("host access: %w", err)
	}
	return cniplugin.Error(code, "host access: %s", printable.Joined(err))
}

// removeHostAccess takes away the host access of the attachment, also what a killed ADD left without a checkpoint.
func (c *call) removeHostAccess(ctx context.Context, recorded *checkpoint.Record) error {
	exists, err := hostaccess.Exists(c.host, c.key())
	if err != nil {
		return err
	}
	// A killed DEL can have left what all pods share.
	if !exists && !c.store.HadHostAccess() {
		return nil
	}
	if recorded != nil && recorded.HostAccess != nil && recorded.HostAccess.PreserveSource && c.sandbox != nil && c.sandbox.CheckSame(recorded.Namespace) == nil {
		// The chains of iptables end with the sandbox: they do nothing without the policy rules, and to delete them takes ten times as
		// long as the rest of the DEL. The rules end with it, too.
		_ = hostaccess.ClearRules(c.sandbox)
	}
	return c.accessError(hostends.RemovePath(ctx, c.store, c.host, c.key()))
}

// podEnd returns the name of the pod's end of the recorded host access, if it is relink's. With it, the whole pair goes.
func (c *call) podEnd(recorded *checkpoint.Record) []string {
	if recorded == nil || recorded.HostAccess == nil || !recorded.HostAccessPod(c.host, c.sandbox).IsWhole() {
		return nil // removeHostAccess finds what is left of it.
	}
	return []string{recorded.HostAccess.Name}
}

// checkAccess returns what cuts the path of host access in the pod. What else differs costs no pod its life: `relink check` tells it, and the
// agent or `relink restore` puts right what follows from the node's addresses.
func (c *call) checkAccess(recorded checkpoint.Record) (breaks []string, err error) {
	if recorded.HostAccess == nil {
		return nil, nil
	}
	defer func() { err = c.accessError(err) }()
	node, err := hostaccess.ReadNode(c.host)
	if err != nil {
		return nil, err
	}
	pod := recorded.HostAccessPod(c.host, c.sandbox)
	pod.WithoutFilter = true
	found, err := pod.Inspect(node)
	return found.Breaks, err
}

// hostEnd is the host's end in a result (CNI specification, "interfaces": without "sandbox" it is in the host).
func hostEnd(access *hostaccess.Access) *current.Interface {
	return &current.Interface{Name: access.HostName, Mac: access.MAC, Mtu: access.MTU}
}

// accessStatus fails if the node lacks what each ADD needs for host access.
func (c *call) accessStatus() error {
	if c.HostAccess == nil || !c.HostAccess.PreserveSource && !c.HostAccess.Masquerade {
		return nil
	}
	if err := netfilter.Installed(); err != nil {
		return cniplugin.Error(types.ErrPluginNotAvailable, "host access: %s", printable.Joined(err))
	}
	return nil
}

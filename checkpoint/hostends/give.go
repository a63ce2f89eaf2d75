package hostends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ErrOtherPath says that the node reaches the pod over another network, or has host access by another one.
var ErrOtherPath = errors.New("the node reaches the pod another way")

// LostRouteError says that the pod would lose a way that it has.
type LostRouteError struct {
	// Key is "services" or "extra", and Index the place of Network there.
	Key     string
	Index   int
	Network netip.Prefix
	// Reason says which way that is, and what to do.
	Reason string
}

func (e *LostRouteError) Error() string { return fmt.Sprintf("%s: %s %s", e.Key, e.Network, e.Reason) }

// Target is the attachment that gets host access.
type Target struct {
	Store     *checkpoint.Store
	Key       attachment.Key
	Pod       attachment.Pod
	Interface netstate.Interface
	// Host and Sandbox are open during the call, and while the undo runs. The caller holds the sandbox's lock.
	Host, Sandbox *kernel.Namespace
}

// AddPath makes the path between the pod and its node, and returns what a checkpoint has of it. Its part of the undo takes
// everything away again.
func AddPath(ctx context.Context, target Target, options hostaccess.Options, undo *cniplugin.Undo) (*hostaccess.Access, error) {
	var addresses []netip.Addr
	for _, a := range target.Interface.Addresses {
		addresses = append(addresses, a.Prefix.Addr())
	}
	access, err := hostaccess.NewAccess(target.Key, target.Pod, options, target.Interface.Link.MTU, addresses)
	if err != nil {
		return nil, err
	}
	if len(access.Addresses) == 0 {
		return nil, hostaccess.ErrNoAddress
	}
	if err := errors.Join(target.checkOnlyPath(), target.checkLostRoutes(options)); err != nil {
		return nil, err
	}
	node, err := hostaccess.ReadNode(target.Host)
	if err != nil {
		return nil, err
	}
	if err := node.CheckPodAddresses(access.Addresses); err != nil {
		return nil, err
	}
	exists, err := hostaccess.Exists(target.Host, target.Key)
	if exists {
		err = removeLeftovers(ctx, target.Store, target.Host, target.Sandbox, target.Key)
	}
	if err != nil {
		return nil, err
	}
	pod := hostaccess.Pod{Access: access, Host: target.Host, Sandbox: target.Sandbox}
	undo.Push("host access", func() error {
		return errors.Join(pod.Clear(), RemovePath(ctx, target.Store, target.Host, target.Key))
	})
	hostIndex, err := pod.Build(node)
	if err != nil {
		return nil, err
	}
	err = target.Store.WithNodeLock(ctx, checkpoint.AccessLock, flock.Shared, func() error {
		return hostaccess.Claim(target.Host, access, hostIndex, node)
	})
	if err != nil {
		return nil, err
	}
	return &access, addMasquerade(ctx, target, hostaccess.MasqueradeOf(node, access))
}

// addMasquerade makes the rules of iptables that the pod needs. Most often an earlier pod of the network has the same.
func addMasquerade(ctx context.Context, target Target, needed hostaccess.Masquerade) error {
	store := target.Store
	if len(needed.Sources) == 0 || store.Masquerade().Covers(needed) {
		return nil
	}
	return store.WithNodeLock(ctx, checkpoint.MasqueradeLock, flock.Exclusive, func() error {
		noted := store.Masquerade()
		if noted.Covers(needed) {
			return nil
		}
		return store.ApplyMasquerade(target.Host, needed.Join(noted))
	})
}

// removeLeftovers takes away what a killed AddPath or Remove of the attachment has left: it can have had other settings. What is in the
// sandbox stays if another attachment of the pod has host access: it may be that one's.
func removeLeftovers(ctx context.Context, store *checkpoint.Store, host, sandbox *kernel.Namespace, key attachment.Key) error {
	err := RemovePath(ctx, store, host, key)
	if otherAccess(store, key) == "" {
		err = errors.Join(hostaccess.ClearLeftovers(sandbox), err)
	}
	return err
}

// otherAccess returns the interface of another attachment of the sandbox that has host access, and "" if none has.
func otherAccess(store *checkpoint.Store, key attachment.Key) (ifName string) {
	records, _ := store.ListSandbox(key.ContainerID)
	for _, r := range records {
		if r.HostAccess != nil && r.Attachment != key {
			return r.Attachment.IfName
		}
	}
	return ""
}

// checkLostRoutes refuses a network to be reached through the node if the pod has an equal route, or if the network has the pod's
// gateway.
func (t Target) checkLostRoutes(options hostaccess.Options) error {
	return cmp.Or(t.lostRouteIn("services", options.Services), t.lostRouteIn("extra", options.Extra))
}

func (t Target) lostRouteIn(key string, networks []netip.Prefix) error {
	for i, p := range networks {
		if reason := t.lostRoute(p); reason != "" {
			return &LostRouteError{key, i, p, reason}
		}
	}
	return nil
}

// lostRoute says which way the pod would lose by a route to p through the node. It is empty if it loses none.
func (t Target) lostRoute(p netip.Prefix) string {
	for _, a := range t.Interface.Addresses {
		network := a.Prefix.Masked()
		if p == network || p.Bits() >= network.Bits() && slices.ContainsFunc(t.Interface.Routes, func(r netstate.Route) bool { return p.Contains(r.Gateway) && network.Contains(r.Gateway) }) {
			return "has the pod's own network or its gateway: leave it out"
		}
	}
	if slices.ContainsFunc(t.Interface.Routes, func(r netstate.Route) bool { return r.Destination == p && r.Table == mainTable }) {
		return fmt.Sprintf("is the destination of a route that the pod has over %s: leave it out in one place", t.Interface.Link.Name)
	}
	return ""
}

// mainTable is RT_TABLE_MAIN.
const mainTable = 254

// checkOnlyPath refuses host access to a pod that another network gives its default route: the node reaches the pod over that one,
// and the answers must go there.
func (t Target) checkOnlyPath() error {
	index, err := t.Sandbox.Index(t.Interface.Link.Name)
	if err != nil {
		return err
	}
	ipv4, ipv6, err := t.Sandbox.DefaultRoutes()
	if err != nil {
		return err
	}
	for _, route := range []kernel.DefaultRoute{ipv4, ipv6} {
		if route.Index == 0 || route.Index == index {
			continue
		}
		device, err := t.Sandbox.NameOf(route.Index)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: its default route goes over %s, which is another network's. Give host access to that network if it needs it", ErrOtherPath, device)
	}
	if ifName := otherAccess(t.Store, t.Key); ifName != "" {
		return fmt.Errorf("%w: it has host access by its interface %s. Keep one of them", ErrOtherPath, ifName)
	}
	return nil
}

// RemovePath deletes the pair of the attachment, and what the host has for all pods if this was the last one. It is no error if nothing is
// there. The rules of iptables stay, which match nothing then: Sweep takes them away.
func RemovePath(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, key attachment.Key) error {
	if err := hostaccess.Remove(host, key); err != nil {
		return err
	}
	return removeShared(ctx, store, host)
}

// removeShared takes away what all pods share, if none is left.
func removeShared(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace) error {
	if used, err := hostaccess.IsUsed(host); err != nil || used {
		return err
	}
	return store.WithNodeLock(ctx, checkpoint.AccessLock, flock.Exclusive, func() error {
		if used, err := hostaccess.IsUsed(host); err != nil || used {
			return err
		}
		return hostaccess.RemoveShared(host)
	})
}

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
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Errors of AddPath that callers match with errors.Is.
var (
	// ErrNoAddress: the attachment has no address to be reached at.
	ErrNoAddress = errors.New("the pod's interface has no address")
	// ErrOtherPath: the node reaches the pod over another network, or has host access by another one.
	ErrOtherPath = errors.New("the node reaches the pod another way")
)

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
	// Host and Sandbox are open during the call. The caller holds the sandbox's lock.
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
		return nil, ErrNoAddress
	}
	if err := errors.Join(target.checkOnlyPath(), target.checkLostRoutes(options)); err != nil {
		return nil, err
	}
	if err := hostaccess.CheckPodAddresses(target.Host, access.Addresses); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAddress, err)
	}
	pod := hostaccess.Pod{Access: access, Host: target.Host, Sandbox: target.Sandbox}
	exists, err := target.Host.Exists(access.HostName)
	if exists {
		err = removeLeftovers(ctx, target.Store, target.Host, target.Sandbox, target.Key)
	}
	if err != nil {
		return nil, err
	}
	namespace := target.Sandbox.Identity()
	undo.Push("host access", func() error { return undoAddPath(ctx, target.Store, access, namespace) })
	node, err := hostaccess.ReadNode(target.Host)
	if err != nil {
		return nil, err
	}
	// The pair comes before the lock: while it is there, nobody takes away what all pods share.
	if err := pod.Build(node); err != nil {
		return nil, err
	}
	// It takes the routes even if another pod had the address until now.
	err = target.Store.WithNodeLock(ctx, checkpoint.AccessLock, func() error { return hostaccess.TakeRoutes(target.Host, access, node) })
	if err != nil {
		return nil, err
	}
	return &access, addMasquerade(ctx, target.Store, target.Host, access)
}

// removeLeftovers takes away what a killed AddPath or Remove of the attachment has left: it can have had other settings. What is in the
// sandbox stays if another attachment of the pod has host access: it may be that one's.
func removeLeftovers(ctx context.Context, store *checkpoint.Store, host, sandbox *kernel.Namespace, key attachment.Key) error {
	err := errors.Join(RemovePath(ctx, store, host, hostaccess.HostName(key), len(store.MasqueradeFamilies()) > 0))
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

func addMasquerade(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, access hostaccess.Access) error {
	if !access.Masquerade {
		return nil
	}
	return store.WithNodeLock(ctx, checkpoint.MasqueradeLock, func() error {
		if err := store.NoteMasquerade(hostaccess.FamiliesOf(access)...); err != nil {
			return err
		}
		node, err := hostaccess.ReadNode(host) // Its address can have changed during the wait.
		if err != nil {
			return err
		}
		all := func(string) bool { return true }
		return hostaccess.Masquerade{Node: node, Accesses: []hostaccess.Access{access}, Keep: all}.Ensure(host, hostaccess.FamiliesOf(access)...)
	})
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

// undoAddPath undoes an AddPath. By then, the namespaces that AddPath had may be closed.
func undoAddPath(ctx context.Context, store *checkpoint.Store, access hostaccess.Access, namespace attachment.Namespace) error {
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	var cleared error
	if sandbox, err := kernel.OpenSame(namespace); err == nil {
		cleared = hostaccess.Pod{Access: access, Host: host, Sandbox: sandbox}.Clear()
		sandbox.Close()
	}
	return errors.Join(cleared, errors.Join(RemovePath(ctx, store, host, access.HostName, access.Masquerade)))
}

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

// RemovePath deletes the pair, and what the host has for it. It is no error if nothing is there. masquerades says that there may be a
// rule of iptables. keptErr says why the rules of iptables stay: no iptables can read them, and the next try would find the same. They stay
// noted, so that a sweep deletes them.
func RemovePath(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, hostName string, masquerades bool) (keptErr, err error) {
	removed, err := hostaccess.Remove(host, hostName)
	errs := []error{err}
	if masquerades {
		keptErr, err = removeMasquerade(ctx, store, host, hostName)
		errs = append(errs, err)
	}
	if !removed {
		// Nothing was there. A killed RemovePath can have left what all pods share: nobody waits for that.
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		ctx = cancelled
	}
	err = store.WithNodeLock(ctx, checkpoint.AccessLock, func() error { return hostaccess.RemoveUnused(host) })
	if removed || !errors.Is(err, checkpoint.ErrBusy) {
		errs = append(errs, err)
	}
	return keptErr, errors.Join(errs...)
}

// removeMasquerade deletes the rules of iptables. keptErr is that of RemovePath.
func removeMasquerade(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, hostName string) (keptErr, err error) {
	err = store.WithNodeLock(ctx, checkpoint.MasqueradeLock, func() error {
		families := store.MasqueradeFamilies()
		lost := len(families) == 0 // Somebody may have removed the store. Then nobody knows which family has rules.
		if lost {
			families = netfilter.Families
		}
		var errs []error
		for _, family := range families {
			others := hostaccess.Masquerade{Keep: func(name string) bool { return name != hostName }}
			switch err := others.Ensure(host, family); {
			case netfilter.IsTransient(err):
				errs = append(errs, err)
			case errors.Is(err, netfilter.ErrNotInstalled) || lost:
				// Without iptables the note stays: whoever has iptables sweeps.
			default:
				keptErr = errors.Join(keptErr, err)
			}
		}
		return errors.Join(errs...)
	})
	return keptErr, err
}

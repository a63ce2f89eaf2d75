package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// dadTimeout bounds the wait for duplicate address detection, which takes a second or two. When hundreds of pods come at once, the kernel
// is late with it.
const dadTimeout = flock.DefaultTimeout

// Add attaches the sandbox. If a step fails, the earlier ones are taken back.
func (p Plugin) Add(args *skel.CmdArgs) error {
	c, err := p.begin(args)
	if err != nil {
		return err
	}
	return p.add(c)
}

// addInterface builds the interface, gets its addresses, configures it, saves the checkpoint and prints the result.
func (c *call) addInterface() error {
	// Nothing is built for which nobody can give addresses.
	if err := c.ipam.Find(); err != nil {
		return err
	}
	return c.attach(func(ctx context.Context, undo *cniplugin.Undo) error {
		add := &addition{call: c, undo: undo}
		if err := add.checkSandbox(); err != nil {
			return err
		}
		return add.run(ctx)
	})
}

// addition is the state of an ADD.
type addition struct {
	*call
	// devices are those of the host that the interface is stacked on. They are nil if a sandbox has its master.
	devices netstate.Devices
	// repeated says that there was an earlier ADD of this attachment, as far as anybody can tell.
	// earlier is its checkpoint, nil if that cannot be read.
	repeated bool
	earlier  *checkpoint.Record
	// parent is what the interface is on. index is that of the interface.
	parent netstate.LiveDevice
	index  int
	// access is the path between the pod and its node, nil for none.
	access *hostaccess.Access
	undo   *cniplugin.Undo
}

// checkSandbox refuses the host's own namespace, and a sandbox that has the interface. It reads the checkpoint of an earlier ADD.
func (a *addition) checkSandbox() error {
	if a.isHost() {
		return cniplugin.Error(types.ErrInvalidNetNS, "CNI_NETNS: %q is the host's own namespace", a.args.Netns)
	}
	exists, err := a.sandbox.Exists(a.args.IfName)
	if err != nil {
		return err
	}
	if exists {
		return cniplugin.EnvError("CNI_IFNAME", a.args.IfName, "the sandbox has an interface of that name already; DEL takes away what a killed ADD has left")
	}
	earlier, err := a.store.Load(a.args.ContainerID, a.args.IfName)
	a.repeated = !errors.Is(err, checkpoint.ErrNoCheckpoint)
	if err == nil {
		a.earlier = &earlier
		return a.checkElsewhere()
	}
	return nil
}

// checkElsewhere returns an error if the attachment has another interface, which is there: both would have its addresses.
func (a *addition) checkElsewhere() error {
	other, err := kernel.OpenSame(a.earlier.Namespace)
	if kernel.IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer other.Close()
	if exists, err := other.Exists(a.earlier.Interface.Link.Name); !exists {
		return err
	}
	return cniplugin.EnvError("CNI_NETNS", a.args.Netns, "the container has "+a.args.IfName+" in "+other.Path()+": DEL takes it away")
}

func (a *addition) run(ctx context.Context) error {
	if err := a.build(); err != nil {
		return err
	}
	grant, err := a.address(ctx)
	if err != nil {
		return err
	}
	result := grant.Result
	if err := a.configure(result, grant.Migrating); err != nil {
		return err
	}
	live, err := kernel.Capture(a.host, a.sandbox, a.devices, a.args.IfName, kernel.NewInterfaceExtent)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if a.HostAccess != nil {
		if a.access, err = a.addHostAccess(ctx, live, a.undo); err != nil {
			return err
		}
	}
	a.complete(result, live)
	if err := a.save(ctx, result, live); err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	if err := grant.Commit(ctx); err != nil {
		return err
	}
	failpoint.Here("before printing")
	defer failpoint.Here("after printing")
	return types.PrintResult(result, a.CNIVersion)
}

// parentNamespace is the namespace of the master.
func (a *addition) parentNamespace() *kernel.Namespace {
	if a.LinkInContainer {
		return a.sandbox
	}
	return a.host
}

// build makes the link in the sandbox. It first makes the VLAN parent if that is missing.
func (a *addition) build() error {
	ns := a.parentNamespace()
	master, err := a.master(ns)
	if err != nil {
		return err
	}
	plan, err := parents.ReadPlan(ns, master, a.VLAN)
	if err != nil {
		return err
	}
	if err := parents.CheckMTU(a.MTU, plan.Lower); err != nil {
		return err
	}
	missing := plan.Create
	plan, created, err := plan.Ensure(ns, master)
	if created {
		a.undo.Push("VLAN parent "+missing.Name, func() error { return a.removeUnused(missing.Name) })
	}
	if err != nil {
		return err
	}
	parent := plan.Lower
	if _, err := plan.Devices.Chain(parent.Index); err != nil {
		return cniplugin.ConfigError("master", parent.Name, "can't be remembered: "+err.Error())
	}
	if !a.LinkInContainer {
		a.devices = plan.Devices
	}
	link := a.Link
	link.MTU = a.MTU
	if a.index, err = kernel.Create(ns, a.sandbox, parent.Index, link); err != nil {
		return err
	}
	a.parent = parent
	a.undo.Push("interface", a.deleteInterface)
	return nil
}

func (a *addition) deleteInterface() error { return ignoreGone(a.sandbox.Delete(a.args.IfName)) }

// removeUnused removes a VLAN parent that this ADD made, unless somebody else uses it now.
func (a *addition) removeUnused(parent string) error {
	if !a.parentLock.TryExclusive() {
		return nil
	}
	records, unreadable, err := a.store.List()
	if err != nil || len(unreadable) > 0 {
		return err // Not known to be unused.
	}
	for _, r := range records {
		for _, p := range r.Interface.Parents {
			if p.Name == parent {
				return nil
			}
		}
	}
	devices, err := a.host.Devices()
	if err != nil {
		return err
	}
	device, ok := devices.ByName(parent)
	if !ok || device.MasterIndex != 0 || slices.ContainsFunc(devices, func(d netstate.LiveDevice) bool { return d.ParentIndex == device.Index }) {
		return nil
	}
	if used, err := a.host.HasAddresses(device.Index); err != nil || used {
		return err
	}
	return ignoreGone(a.host.Delete(parent))
}

// address gets addresses from the IPAM plugin that nobody else on the network has.
func (a *addition) address(ctx context.Context) (*delegate.Grant, error) {
	grant, err := a.ipam.Add(ctx, a.repeated)
	if err != nil {
		return nil, err
	}
	a.undo.Push("address", func() error {
		// As in a DEL: an address that the interface still has must not go to another.
		if err := a.deleteInterface(); err != nil {
			return err
		}
		return grant.Undo(ctx)
	})
	return grant, a.avoidConflicts(ctx, grant)
}

// configure sets the interface up with the addresses and routes of the result. An interface that is rebuilt announces no address: the
// kernel is told that it had them.
func (a *addition) configure(result *current.Result, rebuild bool) error {
	addresses, err := cniplugin.Addresses(result)
	if err != nil {
		return err
	}
	routes, err := cniplugin.Routes(result)
	if err != nil {
		return err
	}
	want := netstate.Interface{Link: a.Link, Addresses: addresses, Routes: routes, Settings: settings(addresses)}
	want.Link.Up = true
	if hasIPv6(addresses) {
		if err := a.sandbox.EnableIPv6("lo"); err != nil {
			return err
		}
	}
	if err := a.sandbox.Configure(a.index, want, rebuild); err != nil {
		return err
	}
	if cniplugin.HasIPv6Gateway(result) {
		if err := a.sandbox.WaitForDAD(a.args.IfName, dadTimeout); err != nil {
			return cniplugin.Error(types.ErrTryAgainLater, "%v", err)
		}
	}
	return nil
}

// settings are the sysctls of the interface that the reference plugins set, too: neighbours are told
// of a new MAC, IPv6 is on if it is used, and its addresses stay when the interface goes down.
func settings(addresses []netstate.Address) map[string]string {
	if len(addresses) == 0 {
		return nil
	}
	s := map[string]string{"ipv4/arp_notify": "1"}
	if hasIPv6(addresses) {
		s["ipv6/disable_ipv6"] = "0"
		s["ipv6/ndisc_notify"] = "1"
		s["ipv6/keep_addr_on_down"] = "1"
	}
	return s
}

func hasIPv6(addresses []netstate.Address) bool {
	for _, a := range addresses {
		if a.Prefix.Addr().Is6() {
			return true
		}
	}
	return false
}

// complete adds to the result what the runtime is told of the interface.
func (a *addition) complete(result *current.Result, live netstate.Interface) {
	result.CNIVersion = current.ImplementedSpecVersion
	result.Interfaces = []*current.Interface{{
		Name: a.args.IfName, Mac: live.Link.MAC, Mtu: live.Link.MTU, Sandbox: a.args.Netns,
	}}
	if a.access != nil {
		result.Interfaces = append(result.Interfaces, hostEnd(a.access))
	}
	for _, ip := range result.IPs {
		ip.Interface = current.Int(0)
	}
	result.DNS = a.DNS
}

func (a *addition) save(ctx context.Context, result *current.Result, live netstate.Interface) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	live.Settings = settings(live.Addresses)
	a.undo.Push("checkpoint", a.restoreCheckpoint)
	return a.store.Save(a.record(ctx, live, a.access, raw))
}

// record is what the checkpoint has of the attachment.
func (c *call) record(ctx context.Context, live netstate.Interface, access *hostaccess.Access, result []byte) checkpoint.Record {
	return checkpoint.Record{
		Attachment: c.key(),
		Pod:        c.env.Pod,
		Owner:      c.ipam.Owner(ctx),
		Namespace:  c.sandbox.Identity(),
		Interface:  live,
		HostAccess: access,
		CNI:        checkpoint.CNI{Config: c.args.StdinData, Result: result},
		Writer:     c.plugin.Name,
		CapturedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// restoreCheckpoint puts the earlier checkpoint back.
func (a *addition) restoreCheckpoint() error {
	if a.earlier != nil {
		return a.store.Save(*a.earlier)
	}
	return a.store.Forget(a.args.ContainerID, a.args.IfName)
}

// ignoreGone drops the error of a device to delete that is gone already.
func ignoreGone(err error) error {
	if errors.Is(err, kernel.ErrNoDevice) {
		return nil
	}
	return err
}

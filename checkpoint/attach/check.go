package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Check compares what the CNI result tracks, and what the plugin alone owns, with what is there. It asks the IPAM plugin, too. Its
// error names all differences.
func (p Plugin) Check(args *skel.CmdArgs) error {
	c, err := p.beginCheck(args)
	if err != nil {
		return err
	}
	sandbox, err := c.openSandbox()
	if err != nil {
		return err
	}
	defer sandbox.Close()
	result, err := c.prevResult()
	if err != nil {
		return err
	}
	recorded, err := c.recorded()
	if err != nil {
		return err
	}
	differences := listedDifferently(args, result)
	compared, err := c.compare(sandbox, recorded, result)
	if err != nil {
		return err
	}
	return cniplugin.Join(differ(args.IfName, append(differences, compared...)), c.ipam.Check(context.Background()))
}

// differ is the error of a CHECK that has found these differences, nil for none.
func differ(ifName string, differences []string) error {
	if len(differences) == 0 {
		return nil
	}
	return cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", ifName, strings.Join(differences, "; "))
}

// compare returns what CHECK has to report of the interface and of its host access.
func (c *call) compare(sandbox *kernel.Namespace, recorded checkpoint.Record, result *current.Result) ([]string, error) {
	wanted, err := c.store.Wanted(recorded, sandbox.Exists)
	if err != nil {
		return nil, err
	}
	recorded.Interface = wanted
	live, err := c.captureRecorded(sandbox, recorded)
	if err != nil {
		return nil, err
	}
	addresses, err := sandbox.OwnAddresses()
	if err != nil {
		return nil, err
	}
	access, err := c.checkAccess(sandbox, recorded)
	return append(differences(c.args.IfName, recorded.Interface, live, addresses, result), access...), err
}

// recorded returns the attachment's checkpoint.
func (c *call) recorded() (checkpoint.Record, error) {
	r, err := c.store.Load(c.args.ContainerID, c.args.IfName)
	if errors.Is(err, checkpoint.ErrNone) {
		return r, cniplugin.Error(types.ErrUnknownContainer, "%v", err)
	}
	if err != nil {
		return r, cniplugin.Error(types.ErrDecodingFailure, "%v", err)
	}
	return r, nil
}

// captureRecorded captures the interface. It fails if the sandbox is not the recorded one.
func (c *call) captureRecorded(sandbox *kernel.Namespace, recorded checkpoint.Record) (netstate.Interface, error) {
	if err := recorded.Namespace.Same(sandbox.Identity()); err != nil {
		return netstate.Interface{}, cniplugin.Error(cniplugin.CodeDiffers, "namespace %s: %v", c.args.Netns, err)
	}
	live, err := capture(sandbox, recorded.Interface.Link.Name, kernel.Extent{})
	if err != nil {
		return live, cniplugin.Error(cniplugin.CodeDiffers, "%v", err)
	}
	return live, nil
}

func capture(sandbox *kernel.Namespace, ifName string, extent kernel.Extent) (netstate.Interface, error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return netstate.Interface{}, err
	}
	defer host.Close()
	devices, err := host.Devices()
	if err != nil {
		return netstate.Interface{}, err
	}
	return kernel.Capture(host, sandbox, devices, ifName, extent)
}

func (c *call) prevResult() (*current.Result, error) {
	if c.PrevResult == nil {
		return nil, cniplugin.ConfigError("prevResult", cniplugin.Missing, "CHECK needs the result of the ADD")
	}
	previous, err := c.Previous()
	if err != nil {
		return nil, cniplugin.ConfigError("prevResult", cniplugin.Written(c.PrevResult), "must be the result of the ADD")
	}
	result, err := current.NewResultFromResult(previous)
	if err != nil {
		return nil, cniplugin.ConfigError("prevResult", cniplugin.Written(c.PrevResult), "must be the result of the ADD")
	}
	return result, nil
}

// owned are the fields that the plugin alone decides. A later plugin of the list, the pod or an admin may change everything else, such
// as the MTU or the MAC: that is drift, which `relink check` and the agent report. A runtime may rebuild a pod whose CHECK fails, so CHECK
// must not fail for a pod that works.
var owned = []netstate.Field{netstate.FieldKind, netstate.FieldVLAN, netstate.FieldParent, netstate.FieldMode, netstate.FieldUp}

// differences returns what is not as the record and the result say. Addresses and routes count if both have them: the result may list
// those of later plugins, and the record those that the pod has added itself.
func differences(ifName string, recorded, live netstate.Interface, addresses []kernel.OwnAddress, result *current.Result) []string {
	var found []string
	for _, d := range netstate.Diff(recorded, live) {
		if slices.Contains(owned, d.Field) {
			found = append(found, d.String())
		}
	}
	own := ofInterface(ifName, result)
	listed, err := cniplugin.Addresses(own)
	if err != nil {
		return append(found, "prevResult: "+err.Error())
	}
	routes, err := cniplugin.Routes(own)
	if err != nil {
		return append(found, "prevResult: "+err.Error())
	}
	for _, a := range listed {
		same := func(other netstate.Address) bool { return other.Prefix == a.Prefix }
		there := func(other kernel.OwnAddress) bool {
			// On kernels before 5.18 Capture leaves out IPv6 addresses that have a lifetime.
			return other.Index == live.Link.Index && other.Addr == a.Prefix.Addr() && other.Bits == a.Prefix.Bits()
		}
		if slices.ContainsFunc(recorded.Addresses, same) && !slices.ContainsFunc(addresses, there) {
			found = append(found, fmt.Sprintf("address %s is missing", a))
		}
	}
	for _, r := range routes {
		if leadsAs(recorded, r) && !leadsAs(live, r) {
			found = append(found, fmt.Sprintf("route %s is missing", r))
		}
	}
	return found
}

// leadsAs says that the interface has the route in one of the tables, whatever its metric and protocol. The plugin sbr moves routes to
// other tables, and passes the result on without that.
func leadsAs(i netstate.Interface, r netstate.Route) bool {
	return slices.ContainsFunc(i.Routes, r.LeadsAs)
}

// listedDifferently says how the result lists another interface than that of the call.
func listedDifferently(args *skel.CmdArgs, result *current.Result) []string {
	i := indexOf(args.IfName, result)
	if i < 0 {
		return []string{fmt.Sprintf("prevResult has no interface %s", args.IfName)}
	}
	if listed := result.Interfaces[i].Sandbox; listed != args.Netns {
		return []string{fmt.Sprintf("prevResult has it in %s, not in %s", listed, args.Netns)}
	}
	return nil
}

// indexOf returns the place of the pod's interface in the result, or -1.
func indexOf(ifName string, result *current.Result) int {
	return slices.IndexFunc(result.Interfaces, func(i *current.Interface) bool { return i != nil && i.Name == ifName && i.Sandbox != "" })
}

// ofInterface returns the result's routes, and its addresses for the interface.
func ofInterface(ifName string, result *current.Result) *current.Result {
	index := indexOf(ifName, result)
	own := &current.Result{}
	for _, ip := range result.IPs {
		if ip != nil && (ip.Interface == nil || *ip.Interface == index) {
			own.IPs = append(own.IPs, ip)
		}
	}
	for _, r := range result.Routes {
		if r != nil {
			own.Routes = append(own.Routes, r)
		}
	}
	return own
}

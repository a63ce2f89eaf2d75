package attach

import (
	"cmp"
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
// error names all differences. For a chained plugin, the interface plugin has a CHECK of its own for what it lists in the result.
func (p Plugin) Check(args *skel.CmdArgs) error {
	if _, err := cniplugin.ParseArgs(args.Args); err != nil {
		return err
	}
	c, err := p.beginRecorded(args, false)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.open(); err != nil {
		return err
	}
	result, err := c.prevResult()
	if err != nil {
		return err
	}
	recorded, err := c.recorded()
	if p.isChained() && c.isUnrecordable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var differences []string
	if !p.isChained() {
		differences = resultDifferences(args, result)
	}
	compared, err := c.compare(recorded, result)
	if err != nil {
		return err
	}
	return cniplugin.Join(differsError(args.IfName, append(differences, compared...)), c.callIPAM(ipamPlugin.Check))
}

// isUnrecordable says that there is no checkpoint because the interface cannot be remembered.
func (c *call) isUnrecordable(err error) bool {
	coded := new(types.Error)
	if !errors.As(err, &coded) || coded.Code != types.ErrUnknownContainer {
		return false
	}
	_, err = c.capture(c.args.IfName, kernel.Extent{})
	return errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrNoDevice)
}

// differsError is the error of a CHECK that has found these differences, nil for none.
func differsError(ifName string, differences []string) error {
	if len(differences) == 0 {
		return nil
	}
	return cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", ifName, strings.Join(differences, "; "))
}

// compare returns what CHECK has to report of the interface and of its host access.
func (c *call) compare(recorded checkpoint.Record, result *current.Result) ([]string, error) {
	wanted, err := c.store.Effective(recorded, c.sandbox.Exists)
	if err != nil {
		return nil, err
	}
	recorded.Interface = wanted
	live, err := c.captureRecorded(recorded)
	if err != nil {
		return nil, err
	}
	addresses, err := c.sandbox.LocalAddresses()
	if err != nil {
		return nil, err
	}
	access, err := c.checkAccess(recorded)
	return append(differences(c.args.IfName, recorded.Interface, live, addresses, result), access...), err
}

// recorded returns the attachment's checkpoint.
func (c *call) recorded() (checkpoint.Record, error) {
	r, err := c.store.Load(c.args.ContainerID, c.args.IfName)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return r, cniplugin.Error(types.ErrUnknownContainer, "%v", err)
	}
	if err != nil {
		return r, cniplugin.Error(types.ErrDecodingFailure, "%v", err)
	}
	return r, nil
}

// captureRecorded captures the interface. It fails if the sandbox is not the recorded one.
func (c *call) captureRecorded(recorded checkpoint.Record) (netstate.Interface, error) {
	if err := c.sandbox.CheckSame(recorded.Namespace); err != nil {
		return netstate.Interface{}, cniplugin.Error(cniplugin.CodeDiffers, "namespace %s: %v", c.args.Netns, err)
	}
	live, err := c.capture(recorded.Interface.Link.Name, kernel.Extent{})
	if err != nil {
		return live, cniplugin.Error(cniplugin.CodeDiffers, "%v", err)
	}
	return live, nil
}

func (c *call) capture(ifName string, extent kernel.Extent) (netstate.Interface, error) {
	return kernel.Capture(c.host, c.sandbox, nil, ifName, extent)
}

func (c *call) prevResult() (*current.Result, error) {
	if c.PrevResult == nil {
		return nil, cniplugin.ConfigError("prevResult", cniplugin.Missing, "CHECK needs the result of the ADD")
	}
	return c.Previous()
}

// pluginFields are the fields that the plugin alone decides. A later plugin of the list, the pod or an admin may change everything else, such
// as the MTU or the MAC: that is drift, which `relink check` and the agent report. A runtime may rebuild a pod whose CHECK fails, so CHECK
// must not fail for a pod that works.
var pluginFields = []netstate.Field{netstate.FieldKind, netstate.FieldVLAN, netstate.FieldParent, netstate.FieldMode, netstate.FieldUp}

// differences returns what is not as the record and the result say. Addresses and routes count if both have them: the result may list
// those of later plugins, and the record those that the pod has added itself.
func differences(ifName string, recorded, live netstate.Interface, addresses []kernel.LocalAddress, result *current.Result) []string {
	var found []string
	for _, d := range netstate.Diff(recorded, live) {
		if slices.Contains(pluginFields, d.Field) {
			found = append(found, d.String())
		}
	}
	filtered := cniplugin.ForInterface(result, ifName)
	listed, err := cniplugin.Addresses(filtered)
	routes, wrongRoute := cniplugin.Routes(filtered)
	if err := cmp.Or(err, wrongRoute); err != nil {
		return append(found, "prevResult: "+err.Error())
	}
	for _, a := range listed {
		recordedSame := func(candidate netstate.Address) bool { return candidate.Prefix == a.Prefix }
		assigned := func(candidate kernel.LocalAddress) bool {
			// On kernels before 5.18 Capture leaves out IPv6 addresses that have a lifetime.
			return candidate.Index == live.Link.Index && candidate.Addr == a.Prefix.Addr() && candidate.Bits == a.Prefix.Bits()
		}
		if slices.ContainsFunc(recorded.Addresses, recordedSame) && !slices.ContainsFunc(addresses, assigned) {
			found = append(found, fmt.Sprintf("address %s is missing", a))
		}
	}
	for _, r := range routes {
		if hasRoute(recorded, r) && !hasRoute(live, r) {
			found = append(found, fmt.Sprintf("route %s is missing", r))
		}
	}
	return found
}

// hasRoute says that the interface has the route in one of the tables, whatever its metric and protocol. The plugin sbr moves routes to
// other tables, and passes the result on without that.
func hasRoute(i netstate.Interface, r netstate.Route) bool {
	return slices.ContainsFunc(i.Routes, r.SamePath)
}

// resultDifferences says how the result lists another interface than that of the call.
func resultDifferences(args *skel.CmdArgs, result *current.Result) []string {
	i := cniplugin.InterfaceIndex(result, args.IfName)
	if i < 0 {
		return []string{fmt.Sprintf("prevResult has no interface %s", args.IfName)}
	}
	if listed := result.Interfaces[i].Sandbox; listed != args.Netns {
		return []string{fmt.Sprintf("prevResult has it in %s, not in %s", listed, args.Netns)}
	}
	return nil
}

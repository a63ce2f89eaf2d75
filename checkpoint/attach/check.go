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

// Check compares the interface and its parents with its checkpoint and with prevResult, and asks the
// IPAM plugin. Its error names all differences.
func (p Plugin) Check(args *skel.CmdArgs) error {
	c, err := p.begin(args)
	if err != nil {
		return err
	}
	result, err := c.prevResult()
	if err != nil {
		return err
	}
	recorded, err := c.recorded()
	if err != nil {
		return err
	}
	sandbox, err := c.openSandbox()
	if err != nil {
		return err
	}
	defer sandbox.Close()
	if recorded.Interface, err = c.store.Wanted(recorded, sandbox.Exists); err != nil {
		return err
	}
	live, err := c.captureRecorded(sandbox, recorded)
	if err != nil {
		return err
	}
	differences := differences(args, recorded, result, live)
	access, err := c.checkAccess(sandbox, recorded)
	if err != nil {
		return err
	}
	differences = append(differences, access...)
	if len(differences) > 0 {
		err = cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", args.IfName, strings.Join(differences, "; "))
	}
	return cniplugin.Join(err, c.ipam.Check(context.Background()))
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
	live, err := capture(sandbox, recorded.Interface.Link.Name, kernel.ExtentOf(recorded.Interface))
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

func differences(args *skel.CmdArgs, recorded checkpoint.Record, result *current.Result, live netstate.Interface) []string {
	var found []string
	for _, d := range netstate.Diff(recorded.Interface, live) {
		found = append(found, d.String())
	}
	for _, d := range resultDifferences(args, result, live) {
		if !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	return found
}

// resultDifferences compares the live interface with the result of its ADD. A result says less than
// a checkpoint. What it leaves out can be anything.
func resultDifferences(args *skel.CmdArgs, result *current.Result, live netstate.Interface) []string {
	var found []string
	i := slices.IndexFunc(result.Interfaces, func(i *current.Interface) bool {
		return i.Name == args.IfName && i.Sandbox != ""
	})
	if i < 0 {
		return []string{fmt.Sprintf("prevResult has no interface %s", args.IfName)}
	}
	was := result.Interfaces[i]
	if was.Sandbox != args.Netns {
		found = append(found, fmt.Sprintf("prevResult has it in %s, not in %s", was.Sandbox, args.Netns))
	}
	want := netstate.Interface{Link: netstate.Link{Kind: live.Link.Kind, MAC: strings.ToLower(was.Mac), MTU: was.Mtu}}
	for _, d := range netstate.Diff(want, live) {
		found = append(found, d.String())
	}
	return append(found, missingIPs(i, result, live)...)
}

func missingIPs(index int, result *current.Result, live netstate.Interface) []string {
	own := &current.Result{Routes: result.Routes}
	for _, ip := range result.IPs {
		if ip.Interface == nil || *ip.Interface == index {
			own.IPs = append(own.IPs, ip)
		}
	}
	addresses, err := cniplugin.Addresses(own)
	if err != nil {
		return []string{"prevResult: " + err.Error()}
	}
	routes, err := cniplugin.Routes(own)
	if err != nil {
		return []string{"prevResult: " + err.Error()}
	}
	var found []string
	for _, a := range addresses {
		if !slices.ContainsFunc(live.Addresses, func(l netstate.Address) bool { return l.Prefix == a.Prefix }) {
			found = append(found, fmt.Sprintf("address %s is missing", a))
		}
	}
	for _, r := range routes {
		if !slices.ContainsFunc(live.Routes, r.MetBy) {
			found = append(found, fmt.Sprintf("route %s is missing", r))
		}
	}
	return found
}

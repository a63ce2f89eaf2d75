package hostaccess

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ErrTaken says that the pod has a device of the name already.
var ErrTaken = errors.New("the sandbox has a device of that name already")

// Build makes the pair and everything of it in the sandbox. What a killed Build of the same attachment left in the host, it
// deletes first. If the sandbox has a device of the name, it returns ErrTaken. The caller removes what a failed Build leaves:
// Remove.
func (p Pod) Build(node Node) error {
	pair := kernel.Pair{HostName: p.HostName, Name: p.Name, MAC: p.MAC, MTU: p.MTU, Alias: p.Alias}
	err := kernel.CreatePair(p.Host, p.Sandbox, pair)
	if errors.Is(err, kernel.ErrExists) {
		if _, err := Remove(p.Host, p.HostName); err != nil {
			return err
		}
		if exists, err := p.Sandbox.Exists(p.Name); err != nil || exists {
			return errors.Join(err, fmt.Errorf("%s: %w", p.Name, ErrTaken))
		}
		if err = kernel.CreatePair(p.Host, p.Sandbox, pair); errors.Is(err, kernel.ErrExists) {
			return fmt.Errorf("%w. It is not relink's: delete or rename it", err)
		}
	}
	if err != nil {
		return err
	}
	failpoint.Here("after pair")
	if err := p.configure(node); err != nil {
		return err
	}
	return p.ensureFilter()
}

// configure sets up both ends of a new pair. The host's end comes first: it must never be up with the kernel's own settings.
func (p Pod) configure(node Node) error {
	pod := p.podInterface(node)
	conflicts, err := p.readRouteConflicts(node)
	if err != nil {
		return err
	}
	pod.Routes = withoutConflicts(pod.Routes, conflicts)
	host := p.hostInterface(node)
	host.Settings = p.newHostSettings(node)
	hostIndex, err := p.Host.Index(p.HostName)
	if err != nil {
		return err
	}
	podIndex, err := p.Sandbox.Index(p.Name)
	if err != nil {
		return err
	}
	if err := configureEnd(p.Host, hostIndex, host); err != nil {
		return err
	}
	return configureEnd(p.Sandbox, podIndex, pod)
}

func configureEnd(ns *kernel.Namespace, index int, want netstate.Interface) error {
	if err := withoutIPv6(ns.Configure(index, want, false)); err != nil {
		return fmt.Errorf("%s: %w", want.Link.Name, err)
	}
	return nil
}

// withoutIPv6 drops the errors about settings that the kernel does not have: it may have no IPv6.
func withoutIPv6(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, e := range several.Unwrap() {
			rest = append(rest, withoutIPv6(e))
		}
		return errors.Join(rest...)
	}
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "ipv6/") {
		return nil
	}
	return err
}

// Remove deletes the pair with that end in the host. It is no error if it is gone. It leaves a device alone that is no veth, or that
// neither has an alias of relink's nor looks like an end of relink's.
func Remove(host *kernel.Namespace, hostName string) (removed bool, err error) {
	end, ok, err := hostEnd(host, hostName, host, nil)
	if _, ours := ParseAlias(end.Link.Alias); err != nil || !ok || !ours && !end.Link.NoARP {
		return false, err
	}
	failpoint.Here("before pair's end")
	err = host.Delete(hostName)
	if errors.Is(err, kernel.ErrNoDevice) {
		return false, nil
	}
	return err == nil, err
}

// Repair mends what Inspect has found, and inspects again. The error says what it could not mend, or not look at.
func (p Pod) Repair(found Inspection, node Node) error {
	const passes = 2 // An end that goes down and up loses addresses and routes.
	if len(found.Differences) == 0 {
		return found.FilterErr
	}
	for range passes {
		if err := p.repairOnce(found, node); err != nil {
			return err
		}
		var err error
		if found, err = p.Inspect(node); err != nil || len(found.Differences) == 0 {
			return errors.Join(err, found.FilterErr)
		}
	}
	return fmt.Errorf("not as it should be: %s", strings.Join(found.Differences, "; "))
}

func (p Pod) repairOnce(found Inspection, node Node) error {
	switch {
	case found.foreign:
		return fmt.Errorf("%s: left alone", strings.Join(found.Differences, "; "))
	case !found.complete:
		return p.Build(node)
	}
	errs := []error{p.repairHostEnd(found, node), p.repairPod(found, node), p.Sandbox.DeleteRoutes(found.staleRoutes)}
	if !found.filterOK {
		errs = append(errs, p.ensureFilter())
	}
	return errors.Join(errs...)
}

// FollowNode makes right what follows from the node. The rest stays as it is: somebody has changed it, or set the host's end down.
func (p Pod) FollowNode(found Inspection, node Node) error {
	var errs []error
	settings := p.hostInterface(node).Settings
	for _, d := range found.host {
		if d.Field == netstate.FieldSetting {
			errs = append(errs, withoutIPv6(p.Host.WriteSetting(p.HostName, d.Setting, settings[d.Setting])))
		}
	}
	return errors.Join(append(errs, p.Sandbox.AddRoutesBeside(found.nodeRoutes), p.Sandbox.DeleteRoutes(found.staleRoutes))...)
}

func (p Pod) repairHostEnd(found Inspection, node Node) error {
	if len(found.host) == 0 {
		return nil
	}
	want := p.hostInterface(node)
	for _, d := range found.host {
		if d.Field == netstate.FieldUp {
			want.Settings = p.newHostSettings(node) // A kill can have left it so: it is as a new one.
		}
	}
	return configureEnd(p.Host, found.hostEnd, want)
}

func (p Pod) repairPod(found Inspection, node Node) error {
	if len(found.pod) == 0 {
		return nil
	}
	want := p.podInterface(node)
	want.Addresses, want.Routes, want.Rules = nil, nil, nil
	var addresses []netstate.Address
	var routes []kernel.TableRoute
	for _, d := range found.pod {
		switch d.Field {
		case netstate.FieldAddress:
			addresses = append(addresses, *d.Address)
		case netstate.FieldRoute:
			routes = append(routes, kernel.TableRoute{Route: *d.Route, Index: found.podIndex})
		case netstate.FieldRule:
			want.Rules = append(want.Rules, *d.Rule)
		}
	}
	return errors.Join(configureEnd(p.Sandbox, found.podIndex, want), p.Sandbox.AddAddresses(found.podIndex, addresses), p.Sandbox.AddRoutesBeside(routes))
}

// Clear takes away what the pod keeps when the pair is deleted: its rules and its chains of iptables. A pod that ends needs no
// Clear.
func (p Pod) Clear() error {
	if !p.PreserveSource {
		return nil
	}
	return clearSandbox(p.Sandbox, FamiliesOf(p.Access))
}

// ClearLeftovers is Clear for a sandbox where nobody knows what a kill has left.
func ClearLeftovers(sandbox *kernel.Namespace) error {
	rules, err := returnPolicyRules(sandbox)
	if err != nil || len(rules) == 0 {
		return err // The rules come before the chains, and go after them.
	}
	return clearSandbox(sandbox, netfilter.Families)
}

func clearSandbox(sandbox *kernel.Namespace, families []netfilter.Family) error {
	if err := removeReturnChains(sandbox, families); err != nil {
		return err
	}
	return ClearRules(sandbox)
}

// ClearRules takes away the policy rules of preserveSource in the sandbox.
func ClearRules(sandbox *kernel.Namespace) error {
	rules, err := returnPolicyRules(sandbox)
	errs := []error{err}
	for _, r := range rules {
		errs = append(errs, sandbox.DeleteRule(r))
	}
	return errors.Join(errs...)
}

// returnPolicyRules are the rules of preserveSource in the sandbox, whatever their mark is.
func returnPolicyRules(sandbox *kernel.Namespace) ([]netstate.Rule, error) {
	rules, _, err := sandbox.Rules()
	return slices.DeleteFunc(rules, func(r netstate.Rule) bool {
		return r.Priority != Priority || r.Table != Table || r.Protocol != podProtocol
	}), err
}

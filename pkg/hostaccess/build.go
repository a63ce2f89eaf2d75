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
	pair := kernel.Pair{HostName: p.HostName, Name: p.Name, MAC: p.MAC, MTU: p.MTU, Alias: p.Alias, AltNames: podNames(p.Alias)}
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
	for _, end := range []struct {
		namespace *kernel.Namespace
		want      netstate.Interface
	}{{p.Host, host}, {p.Sandbox, pod}} {
		index, err := end.namespace.Index(end.want.Link.Name)
		if err != nil {
			return err
		}
		if err := withoutIPv6(end.namespace.Configure(index, end.want, kernel.ConfigureOptions{})); err != nil {
			return fmt.Errorf("%s: %w", end.want.Link.Name, err)
		}
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

// Remove deletes the pair with that end in the host, and returns its alias. It is no error if it is gone: the alias is empty then. It
// leaves a device alone that is no veth, or that neither has an alias of relink's nor looks like an end of relink's.
func Remove(host *kernel.Namespace, hostName string) (alias string, err error) {
	end, ok, err := hostEnd(host, hostName, host, nil)
	if err != nil || !ok {
		return "", err
	}
	if _, ours := ParseAlias(end.Link.Alias); !ours && !end.Link.NoARP {
		return "", nil
	}
	failpoint.Here("before pair's end")
	if err := host.Delete(hostName); errors.Is(err, kernel.ErrNoDevice) || errors.Is(err, kernel.ErrUnsupported) {
		return "", nil
	} else if err != nil {
		return end.Link.Alias, err
	}
	return end.Link.Alias, nil
}

// Repair makes right what Look has found, and looks again. What cannot be mended, or not be looked at, is the error.
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
	var errs []error
	wantHost := p.hostInterface(node)
	if slices.ContainsFunc(found.host, func(d netstate.Difference) bool { return d.Field == netstate.FieldUp }) {
		// A kill can have left it so: it is as a new one.
		wantHost.Settings = p.newHostSettings(node)
		errs = append(errs, withoutIPv6(p.Host.Configure(found.hostEnd, wantHost, kernel.ConfigureOptions{})))
	}
	errs = append(errs, repairEnd(p.Host, found.hostEnd, wantHost, found.host), repairEnd(p.Sandbox, found.podIndex, p.podInterface(node), found.pod))
	errs = append(errs, p.Sandbox.DeleteRoutes(found.staleRoutes))
	if !found.filterOK {
		errs = append(errs, p.ensureFilter())
	}
	return errors.Join(errs...)
}

// UpdateNodeRoutes makes right what follows from the node, of a pod that somebody has also changed: the rest stays as it is.
func (p Pod) UpdateNodeRoutes(found Inspection) error {
	return errors.Join(p.Sandbox.AddRoutesBeside(found.nodeRoutes), p.Sandbox.DeleteRoutes(found.staleRoutes))
}

// HasNodeRoutes says that there is something for UpdateNodeRoutes.
func (s Inspection) HasNodeRoutes() bool { return len(s.nodeRoutes)+len(s.staleRoutes) > 0 }

// repairEnd makes one end right.
func repairEnd(ns *kernel.Namespace, index int, want netstate.Interface, differences []netstate.Difference) error {
	var errs []error
	if slices.ContainsFunc(differences, func(d netstate.Difference) bool { return isLinkField(d.Field) }) {
		errs = append(errs, ns.SetEnd(index, want.Link))
	}
	var addresses []netstate.Address
	var routes []kernel.TableRoute
	for _, d := range differences {
		switch d.Field {
		case netstate.FieldSetting:
			errs = append(errs, withoutIPv6(ns.WriteSetting(want.Link.Name, d.Setting, want.Settings[d.Setting])))
		case netstate.FieldAddress:
			addresses = append(addresses, *d.Address)
		case netstate.FieldRoute:
			routes = append(routes, kernel.TableRoute{Route: *d.Route, Index: index})
		case netstate.FieldRule:
			errs = append(errs, ns.AddRule(*d.Rule))
		}
	}
	if len(addresses) > 0 {
		errs = append(errs, ns.AddAddresses(index, addresses))
	}
	return errors.Join(append(errs, ns.AddRoutesBeside(routes))...)
}

func isLinkField(f netstate.Field) bool {
	return slices.Contains([]netstate.Field{netstate.FieldMAC, netstate.FieldMTU, netstate.FieldFlags, netstate.FieldAlias, netstate.FieldUp}, f)
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
	return clearSandbox(sandbox, []netfilter.Family{netfilter.IPv4, netfilter.IPv6})
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
	rules, err := sandbox.Rules()
	return slices.DeleteFunc(rules, func(r netstate.Rule) bool {
		return r.Priority != Priority || r.Table != Table || r.Protocol != podProtocol
	}), err
}

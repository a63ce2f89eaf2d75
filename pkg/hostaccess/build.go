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

// Pod is the sandbox's part of an access, and what it takes to compare and to repair it.
type Pod struct {
	Access
	// WithoutFilter leaves out the rules of iptables: to look at them takes several processes.
	WithoutFilter bool
	// Host and Sandbox are open for as long as the Pod is used.
	Host, Sandbox *kernel.Namespace
}

// ErrTaken says that the pod has a device of the name already.
var ErrTaken = errors.New("the sandbox has a device of that name already")

// Build makes the pair and everything of it in the sandbox. What a killed Build of the same attachment left in the host, it
// deletes first. It returns the index of the host's end. If the sandbox has a device of the name, it returns ErrTaken. The caller removes what a
// failed Build leaves: Remove.
func (p Pod) Build(node Node) (hostIndex int, err error) {
	pair := kernel.Pair{HostName: p.HostName, Name: p.Name, MAC: p.MAC, MTU: p.MTU, Alias: p.Alias}
	err = kernel.CreatePair(p.Host, p.Sandbox, pair)
	if errors.Is(err, kernel.ErrExists) {
		if err := removeEnd(p.Host, p.HostName); err != nil {
			return 0, err
		}
		if exists, err := p.Sandbox.Exists(p.Name); err != nil || exists {
			return 0, errors.Join(err, fmt.Errorf("%s: %w", p.Name, ErrTaken))
		}
		if err = kernel.CreatePair(p.Host, p.Sandbox, pair); errors.Is(err, kernel.ErrExists) {
			return 0, fmt.Errorf("%w. It is not relink's: delete or rename it", err)
		}
	}
	if err != nil {
		return 0, err
	}
	failpoint.Here("after pair")
	if hostIndex, err = p.configure(node); err == nil {
		err = p.ensureFilter()
	}
	return hostIndex, err
}

// configure sets up both ends of a new pair. The host's end comes first: it must never be up with the kernel's own settings.
func (p Pod) configure(node Node) (hostIndex int, err error) {
	pod := p.podInterface(node)
	if pod.Routes, err = p.withoutConflicts(pod.Routes); err != nil {
		return 0, err
	}
	host := p.hostInterface(node)
	host.Settings = p.newHostSettings(node)
	if hostIndex, err = p.Host.Index(p.HostName); err != nil {
		return 0, err
	}
	podIndex, err := p.Sandbox.Index(p.Name)
	if err != nil {
		return 0, err
	}
	return hostIndex, errors.Join(configureEnd(p.Host, hostIndex, host), configureEnd(p.Sandbox, podIndex, pod))
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

// Repair mends what Inspect has found, and inspects again. The error says what it could not mend, or not look at.
func (p Pod) Repair(found Inspection, node Node) error {
	const passes = 2 // An end that goes down and up loses addresses and routes.
	for pass := 0; ; pass++ {
		switch {
		case len(found.Differences) == 0:
			return found.FilterErr
		case found.foreign:
			return fmt.Errorf("%s: left alone", strings.Join(found.Differences, "; "))
		case pass == passes:
			return fmt.Errorf("not as it should be: %s", strings.Join(found.Differences, "; "))
		}
		var err error
		if !found.complete {
			_, err = p.Build(node)
		} else if err = p.mend(found, node, false); found.wrongFilter {
			err = errors.Join(err, p.ensureFilter())
		}
		if err == nil {
			found, err = p.Inspect(node)
		}
		if err != nil {
			return err
		}
	}
}

// FollowNode makes right what follows from the node. The rest stays as it is: somebody has changed it, or set the host's end down.
func (p Pod) FollowNode(found Inspection, node Node) error { return p.mend(found, node, true) }

// mend makes both ends of a pair right, as far as they differ. ofNode leaves out what does not follow from the node.
func (p Pod) mend(found Inspection, node Node, ofNode bool) error {
	host, pod := netstate.Interface{Link: netstate.Link{Name: p.HostName}, Settings: map[string]string{}}, netstate.Interface{}
	pod.Link.Name = p.Name
	var routes []kernel.TableRoute
	for _, d := range found.differences {
		switch {
		case ofNode && !d.ofNode:
		case d.Field == netstate.FieldAddress:
			pod.Addresses = append(pod.Addresses, *d.Address)
		case d.Field == netstate.FieldRoute:
			routes = append(routes, kernel.TableRoute{Route: *d.Route, Index: found.podIndex})
		case d.Field == netstate.FieldRule:
			pod.Rules = append(pod.Rules, *d.Rule)
		case d.host && d.Field == netstate.FieldSetting:
			host.Settings[d.Setting] = p.hostSettings(node)[d.Setting]
		case d.host:
			if host.Link = p.hostInterface(node).Link; d.Field == netstate.FieldUp {
				host.Settings = p.newHostSettings(node) // A kill can have left it so: it is as a new one.
			}
		default:
			want := p.podInterface(node)
			pod.Link, pod.Settings = want.Link, want.Settings
		}
	}
	addresses := pod.Addresses
	pod.Addresses = nil
	errs := []error{configureEnd(p.Host, found.hostEnd, host), configureEnd(p.Sandbox, found.podIndex, pod)}
	if len(addresses) > 0 {
		errs = append(errs, p.Sandbox.AddAddresses(found.podIndex, addresses))
	}
	return errors.Join(append(errs, p.Sandbox.AddRoutesBeside(routes), p.Sandbox.DeleteRoutes(found.staleRoutes))...)
}

// Clear takes away what the pod keeps when the pair is deleted: its rules and its chains of iptables. A pod that ends needs no
// Clear.
func (p Pod) Clear() error {
	if !p.PreserveSource {
		return nil
	}
	return clearSandbox(p.Sandbox, familiesOf(p.Addresses))
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
	if err := returnTables(sandbox, families, Access{}).each((*netfilter.Tables).Ensure); err != nil {
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

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
		if there, err := p.Sandbox.Exists(p.Name); err != nil || there {
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
	pod := p.inPod(node)
	taken, err := p.routesOfOthers(node)
	if err != nil {
		return err
	}
	pod.Routes = without(pod.Routes, taken)
	host := p.inHost(node)
	host.Settings = p.newHostSettings(node)
	for _, end := range []struct {
		at   *kernel.Namespace
		want netstate.Interface
	}{{p.Host, host}, {p.Sandbox, pod}} {
		index, err := end.at.Index(end.want.Link.Name)
		if err != nil {
			return err
		}
		if err := withoutIPv6(end.at.Configure(index, end.want, kernel.ConfigureOptions{})); err != nil {
			return fmt.Errorf("%s: %w", end.want.Link.Name, err)
		}
	}
	return nil
}

// withoutIPv6 drops the errors about settings that the kernel does not have: it may have no IPv6.
func withoutIPv6(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var left []error
		for _, e := range several.Unwrap() {
			left = append(left, withoutIPv6(e))
		}
		return errors.Join(left...)
	}
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "ipv6/") {
		return nil
	}
	return err
}

// Remove deletes the pair with that end in the host, and returns its alias. It is no error if it is gone: the alias is empty then. It
// leaves a device alone that is no veth, or that neither has an alias of relink's nor looks like an end of relink's.
func Remove(host *kernel.Namespace, hostName string) (alias string, err error) {
	there, err := host.Exists(hostName)
	if err != nil || !there {
		return "", err
	}
	end, err := host.CaptureEndAlone(hostName, host, nil)
	if err == nil {
		if _, ours := Whose(end.Link.Alias); !ours && !end.Link.NoARP {
			return "", nil
		}
		alias = end.Link.Alias
		failpoint.Here("before pair's end")
		err = host.Delete(hostName)
	}
	if errors.Is(err, kernel.ErrNoDevice) || errors.Is(err, kernel.ErrUnsupported) {
		return "", nil
	}
	return alias, err
}

// Mend makes right what Look has found, and looks again. What cannot be mended, or not be looked at, is the error.
func (p Pod) Mend(seen Seen, node Node) error {
	const passes = 2 // An end that goes down and up loses addresses and routes.
	if len(seen.Differences) == 0 {
		return seen.FilterErr
	}
	for range passes {
		if err := p.mendOnce(seen, node); err != nil {
			return err
		}
		var err error
		if seen, err = p.Look(node); err != nil || len(seen.Differences) == 0 {
			return errors.Join(err, seen.FilterErr)
		}
	}
	return fmt.Errorf("not as it should be: %s", strings.Join(seen.Differences, "; "))
}

func (p Pod) mendOnce(seen Seen, node Node) error {
	switch {
	case seen.foreign:
		return fmt.Errorf("%s: left alone", strings.Join(seen.Differences, "; "))
	case !seen.whole:
		return p.Build(node)
	}
	var errs []error
	wantHost := p.inHost(node)
	if slices.ContainsFunc(seen.host, func(d netstate.Difference) bool { return d.Field == netstate.FieldUp }) {
		// A kill can have left it so: it is as a new one.
		wantHost.Settings = p.newHostSettings(node)
		errs = append(errs, withoutIPv6(p.Host.Configure(seen.hostEnd, wantHost, kernel.ConfigureOptions{})))
	}
	errs = append(errs, mendEnd(p.Host, seen.hostEnd, wantHost, seen.host), mendEnd(p.Sandbox, seen.podIndex, p.inPod(node), seen.pod))
	errs = append(errs, p.Sandbox.DeleteRoutes(seen.stale))
	if !seen.filtered {
		errs = append(errs, p.ensureFilter())
	}
	return errors.Join(errs...)
}

// Follow makes right what follows from the node, of a pod that somebody has also changed: the rest stays as it is.
func (p Pod) Follow(seen Seen) error {
	return errors.Join(p.Sandbox.AddRoutesBeside(seen.nodes), p.Sandbox.DeleteRoutes(seen.stale))
}

// Follows says that there is something for Follow.
func (s Seen) Follows() bool { return len(s.nodes)+len(s.stale) > 0 }

// mendEnd makes one end right.
func mendEnd(at *kernel.Namespace, index int, want netstate.Interface, differences []netstate.Difference) error {
	var errs []error
	if slices.ContainsFunc(differences, func(d netstate.Difference) bool { return isLinks(d.Field) }) {
		errs = append(errs, at.SetEnd(index, want.Link))
	}
	var addresses []netstate.Address
	var routes []kernel.TableRoute
	for _, d := range differences {
		switch d.Field {
		case netstate.FieldSetting:
			errs = append(errs, withoutIPv6(at.WriteSetting(want.Link.Name, d.Setting, want.Settings[d.Setting])))
		case netstate.FieldAddress:
			addresses = append(addresses, *d.Address)
		case netstate.FieldRoute:
			routes = append(routes, kernel.TableRoute{Route: *d.Route, Index: index})
		case netstate.FieldRule:
			errs = append(errs, at.AddRule(*d.Rule))
		}
	}
	if len(addresses) > 0 {
		errs = append(errs, at.AddAddresses(index, addresses))
	}
	return errors.Join(append(errs, at.AddRoutesBeside(routes))...)
}

func isLinks(f netstate.Field) bool {
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
	rules, err := ownRules(sandbox)
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
	rules, err := ownRules(sandbox)
	errs := []error{err}
	for _, r := range rules {
		errs = append(errs, sandbox.DeleteRule(r))
	}
	return errors.Join(errs...)
}

// ownRules are the rules of preserveSource in the sandbox, whatever their mark is.
func ownRules(sandbox *kernel.Namespace) ([]netstate.Rule, error) {
	rules, err := sandbox.Rules()
	return slices.DeleteFunc(rules, func(r netstate.Rule) bool {
		return r.Priority != Priority || r.Table != Table || r.Protocol != podProtocol
	}), err
}

package hostaccess

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/netstate"
)

// HostPlan is what it takes to make the host's part right. It is data: a dry run prints Steps.
type HostPlan struct {
	// routeSteps and otherSteps say what is done, each with its reason: about routes, and about the rest.
	routeSteps, otherSteps []string
	// Broken are the accesses whose end in the host is missing or down, by its name. The host's part of them cannot be made.
	Broken []string
	// Unused says that no pod needs what all pods share: RemoveShared takes it away.
	Unused bool

	replace, remove        []kernel.TableRoute
	addRules               []netstate.Rule
	standIns, dropStandIns []netip.Addr
}

// hostState is what the host has of all accesses.
type hostState struct {
	ends           map[string]netstate.Link
	routes         []kernel.TableRoute
	rules          []netstate.Rule
	localAddresses []kernel.LocalAddress
}

// Steps say what is done, each with its reason.
func (p HostPlan) Steps() []string { return slices.Concat(p.routeSteps, p.otherSteps) }

// Summary says what is done, with one line for many routes.
func (p HostPlan) Summary() []string {
	const shownSteps = 3
	if len(p.routeSteps) <= shownSteps {
		return p.Steps()
	}
	return append([]string{fmt.Sprintf("%d routes between the host and its pods differ. One of them: %s", len(p.routeSteps), p.routeSteps[0])}, p.otherSteps...)
}

// PlanHost says what the host lacks for the accesses. complete says that these are complete of the node's: then what all pods share
// goes with the last access.
func PlanHost(host *kernel.Namespace, accesses []Access, node Node, complete bool) (p HostPlan, err error) {
	var s hostState
	if s.ends, err = host.Ends(); err != nil {
		return p, err
	}
	if s.routes, err = host.TableRoutes(Table, nil); err != nil {
		return p, err
	}
	if s.rules, _, err = host.Rules(); err != nil {
		return p, err
	}
	s.localAddresses, err = host.LocalAddresses()
	return planHost(s, accesses, node, complete), err
}

// planHost is a pure function.
func planHost(state hostState, accesses []Access, node Node, complete bool) HostPlan {
	var p HostPlan
	p.planRoutes(state, accesses, node)
	accesses = slices.DeleteFunc(slices.Clone(accesses), func(a Access) bool { _, exists := state.ends[a.HostName]; return !exists })
	unused := complete && len(accesses) == 0
	for _, link := range state.ends {
		unused = unused && !isOwn(link)
	}
	for _, family := range netfilter.Families {
		ipv6 := family == netfilter.IPv6
		rule, addr := hostRule(ipv6), standIn(ipv6)
		needed := (!ipv6 || !node.NoIPv6) && slices.ContainsFunc(accesses, func(a Access) bool { return a.hasFamily(ipv6) })
		stands := slices.ContainsFunc(state.localAddresses, func(a kernel.LocalAddress) bool { return a.Addr == addr })
		ruled := slices.ContainsFunc(state.rules, func(r netstate.Rule) bool {
			r.Protocol = rule.Protocol // Somebody may have added it by hand.
			return r.String() == rule.String()
		})
		if needed && !ruled {
			p.addRules = append(p.addRules, rule)
			p.addStep("%s rule to table %d in the host: it is missing", family, Table)
		}
		if unused && ruled {
			p.Unused = true
			p.addStep("%s rule to table %d in the host: no pod needs it", family, Table)
		}
		switch {
		case needed && node.standsIn(ipv6) && !stands:
			p.standIns = append(p.standIns, addr)
			p.addStep("address %s of lo in the host: the node has no other one for its pods", addr)
		case unused && stands: // An ADD can need it at this moment: RemoveShared keeps ADDs away.
			p.Unused = true
			p.addStep("address %s of lo in the host: no pod needs it", addr)
		case !node.standsIn(ipv6) && stands && !p.usesSource(state, addr):
			p.dropStandIns = append(p.dropStandIns, addr)
			p.addStep("address %s of lo in the host: no route has it as its source", addr)
		}
	}
	return p
}

// isOwn says that the end is relink's.
func isOwn(end netstate.Link) bool {
	_, ours := ParseAlias(end.Alias)
	return ours
}

func (p *HostPlan) addStep(format string, args ...any) {
	p.otherSteps = append(p.otherSteps, fmt.Sprintf(format, args...))
}

func (p *HostPlan) addRouteStep(format string, args ...any) {
	p.routeSteps = append(p.routeSteps, "route to "+fmt.Sprintf(format, args...))
}

// planRoutes plans the routes to the pods. Two pods can have the same address for a moment, as when a new sandbox takes over: a
// route to either of them is right.
func (p *HostPlan) planRoutes(state hostState, accesses []Access, node Node) {
	upEnds := map[int]bool{}
	for _, link := range state.ends {
		upEnds[link.Index] = link.Up && isOwn(link)
	}
	current := map[netip.Prefix]kernel.TableRoute{}
	for _, r := range state.routes {
		if r.Priority == route(r.Destination, Table, hostProtocol).Priority {
			current[r.Destination] = r
		}
	}
	wanted, names := map[netip.Prefix]bool{}, map[int]string{}
	for _, a := range accesses {
		end := state.ends[a.HostName]
		if !end.Up {
			p.Broken = append(p.Broken, a.HostName)
			continue
		}
		names[end.Index] = a.HostName
		for _, want := range a.hostRoutes(node) {
			r, exists := current[want.Destination]
			right := exists && r.Source == want.Source && (r.Index == end.Index || upEnds[r.Index])
			if !right && !wanted[want.Destination] {
				p.replace = append(p.replace, kernel.TableRoute{Route: want, Index: end.Index})
				reason := fmt.Sprintf("its source is %s, not %s", r.Source, want.Source)
				switch {
				case !exists:
					reason = "it is missing"
				case r.Index != end.Index:
					reason = "it goes through another device"
				case !r.Source.IsValid():
					reason = fmt.Sprintf("it has no source, not %s", want.Source)
				}
				p.addRouteStep("%s through %s in the host: %s", want.Destination.Addr(), a.HostName, reason)
			}
			wanted[want.Destination] = true
		}
	}
	for _, r := range state.routes {
		if name := names[r.Index]; name != "" && !wanted[r.Destination] {
			p.remove = append(p.remove, r)
			p.addRouteStep("%s through %s in the host: the pod does not have the address", r.Destination, name)
		}
	}
}

// usesSource says that a route has the source, also after the plan: the route's pod may not be among those that are looked at.
func (p *HostPlan) usesSource(state hostState, source netip.Addr) bool {
	changed := map[netip.Prefix]bool{}
	for _, r := range slices.Concat(p.replace, p.remove) {
		changed[r.Destination] = true
	}
	return slices.ContainsFunc(state.routes, func(r kernel.TableRoute) bool { return r.Source == source && !changed[r.Destination] })
}

const (
	// loopback is the index of lo in every namespace.
	loopback = 1
	// deprecated is IFA_F_DEPRECATED: nothing begins a connection from the address unless it is told to.
	deprecated = 0x20
)

// Run carries the plan out, without what RemoveShared does. It goes on after a failure, and returns all errors.
func (p HostPlan) Run(host *kernel.Namespace) error { return p.run(host, host.ReplaceRoutes) }

func (p HostPlan) run(host *kernel.Namespace, place func([]kernel.TableRoute) error) error {
	var errs []error
	for _, addr := range p.standIns {
		address := netstate.Address{Prefix: singlePrefix(addr)}
		if addr.Is4() {
			address.Scope = scopeLink // No service of the node takes it for an address to be reached at.
		} else {
			address.Flags = noDAD | deprecated
		}
		errs = append(errs, host.AddAddresses(loopback, []netstate.Address{address}))
	}
	failpoint.Here("before host routes")
	failed := place(p.replace)
	errs = append(errs, failed, host.DeleteRoutes(p.remove))
	errs = append(errs, host.Configure(loopback, netstate.Interface{Rules: p.addRules}, true))
	failpoint.Here("after host rules")
	if failed == nil { // Otherwise the stand-in may be the source still.
		errs = append(errs, deleteStandIns(host, p.dropStandIns))
	}
	return errors.Join(errs...)
}

func deleteStandIns(host *kernel.Namespace, addresses []netip.Addr) (err error) {
	for _, addr := range addresses {
		err = errors.Join(err, host.DeleteAddress(loopback, netstate.Address{Prefix: singlePrefix(addr)}))
	}
	return err
}

// ErrAddressTaken says that another pod of this node has the address, and is reached by it. It may end soon.
var ErrAddressTaken = errors.New("another pod of this node has the address")

// Claim makes the host's part for a new pod. index is that of the pod's end in the host. It looks at nothing: the plan is that of a host that
// has none of it, and the kernel says what is there already. Only if somebody has an address of the pod, Claim looks who. Of an earlier
// sandbox of the same pod, and of an end that is down, it takes the address over.
func Claim(host *kernel.Namespace, access Access, index int, node Node) error {
	empty := hostState{ends: map[string]netstate.Link{access.HostName: {Index: index, Up: true}}}
	plan := planHost(empty, []Access{access}, node, false)
	conflict := false
	err := plan.run(host, func(routes []kernel.TableRoute) error {
		err := host.ClaimRoutes(routes)
		if conflict = errors.Is(err, kernel.ErrExists); conflict {
			return nil // They are replaced below, or refused.
		}
		return err
	})
	if err != nil || !conflict {
		return err
	}
	routes, err := host.TableRoutes(Table, func(r netstate.Route) bool {
		return slices.ContainsFunc(plan.replace, func(want kernel.TableRoute) bool { return want.Destination == r.Destination })
	})
	for _, r := range routes {
		name, nameErr := host.NameOf(r.Index)
		if nameErr != nil || r.Index == index {
			continue // It goes with the device.
		}
		end, ok, endErr := hostEnd(host, name, host, nil)
		if err = errors.Join(err, endErr); ok && isOwn(end.Link) && end.Link.Up && !samePod(end.Link.Alias, access.Alias) {
			return fmt.Errorf("%w: %s is that of %s, by %s in the host", ErrAddressTaken, r.Destination.Addr(), decodeAlias(end.Link.Alias).owner(), name)
		}
	}
	if err != nil {
		return err
	}
	return host.ReplaceRoutes(plan.replace)
}

// hostEnd returns the end of that name in the host, with its settings. ok is false if there is none. sandbox is the namespace of the
// other end.
func hostEnd(host *kernel.Namespace, name string, sandbox *kernel.Namespace, settings []string) (end kernel.End, ok bool, err error) {
	end, err = host.CaptureEnd(name, sandbox, kernel.EndParts{Settings: settings})
	if errors.Is(err, kernel.ErrNoDevice) || errors.Is(err, kernel.ErrUnsupported) {
		return end, false, nil
	}
	return end, err == nil, err
}

// Remove deletes the pair of the attachment. It is no error if it is gone. It leaves a device alone that is no veth, or that
// neither has an alias of relink's nor looks like an end of relink's.
func Remove(host *kernel.Namespace, key attachment.Key) error {
	return errors.Join(removeEnd(host, HostName(key, false)), removeEnd(host, HostName(key, true)))
}

func removeEnd(host *kernel.Namespace, name string) error {
	end, ok, err := hostEnd(host, name, host, nil)
	if err != nil || !ok || !isOwn(end.Link) && !end.Link.NoARP {
		return err
	}
	failpoint.Here("before pair's end")
	if err = host.Delete(name); errors.Is(err, kernel.ErrNoDevice) {
		return nil
	}
	return err
}

// Exists says whether the host has a device with the name of the attachment's pair.
func Exists(host *kernel.Namespace, key attachment.Key) (bool, error) {
	exists, err := host.Exists(HostName(key, false))
	if err != nil || exists {
		return exists, err
	}
	return host.Exists(HostName(key, true))
}

// IsUsed says whether the node reaches a pod by host access. It reads one route at most.
func IsUsed(host *kernel.Namespace) (bool, error) { return host.HasRoutes(Table) }

// RemoveShared takes away what all pods share: the policy rules, and the stand-in. No pod needs it, and the caller keeps ADDs away.
func RemoveShared(host *kernel.Namespace) error {
	err := deleteStandIns(host, []netip.Addr{standIn4, standIn6})
	for _, ipv6 := range []bool{false, true} {
		rule := hostRule(ipv6)
		rule.Protocol = 0 // Any: somebody may have added it by hand.
		err = errors.Join(err, host.DeleteRule(rule))
	}
	return err
}

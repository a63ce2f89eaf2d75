package hostaccess

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// HostPlan is what it takes to make the host's part right. It is data: a dry run prints Steps.
type HostPlan struct {
	// routeSteps and otherSteps say what is done, each with its reason: about routes, and about the rest.
	routeSteps, otherSteps []string
	// Broken are the accesses whose end in the host is missing or down, by its name. The host's part of them cannot be made.
	Broken []string

	replace, remove        []kernel.TableRoute
	addRules, removeRules  []netstate.Rule
	standIns, dropStandIns []netip.Addr
}

// hostState is what the host has of all accesses.
type hostState struct {
	ends           map[string]netstate.Link
	routes         []kernel.TableRoute
	rules          []netstate.Rule
	localAddresses []kernel.LocalAddress
}

// ownEnds are relink's.
func (s *hostState) ownEnds() (ends []netstate.Link) {
	for _, link := range s.ends {
		if _, ours := ParseAlias(link.Alias); ours {
			ends = append(ends, link)
		}
	}
	return ends
}

// withEnd are the accesses whose end is there.
func (s *hostState) withEnd(accesses []Access) (living []Access) {
	for _, a := range accesses {
		if _, ok := s.ends[a.HostName]; ok {
			living = append(living, a)
		}
	}
	return living
}

// readHost reads what concerns the accesses: of the ends, theirs and those that have their routes now. An ADD does not pay for all pods of the
// node. For complete, it reads all ends.
func readHost(host *kernel.Namespace, accesses []Access, node Node, complete bool) (s hostState, err error) {
	if complete {
		s.ends, err = host.Ends()
		return s, errors.Join(err, s.readAddressing(host))
	}
	if err := s.readAddressing(host); err != nil {
		return s, err
	}
	s.ends = map[string]netstate.Link{}
	for _, access := range accesses {
		err := s.readEnd(host, access.HostName)
		for index := range s.routeTargets(access, node) {
			err = errors.Join(err, s.readEndAt(host, index))
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// readEndAt is readEnd for the device of that index.
func (s *hostState) readEndAt(host *kernel.Namespace, index int) error {
	name, err := host.NameOf(index)
	if errors.Is(err, kernel.ErrNoDevice) {
		return nil
	}
	return errors.Join(err, s.readEnd(host, name))
}

// readEnd reads the end of that name, if there is one.
func (s *hostState) readEnd(host *kernel.Namespace, name string) error {
	end, ok, err := hostEnd(host, name, host, nil)
	if ok {
		s.ends[name] = end.Link
	}
	return err
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

// routeTargets returns where the routes to the addresses of the access lead: an address by the index of the device.
func (s *hostState) routeTargets(access Access, node Node) map[int]netip.Addr {
	wanted := map[netip.Prefix]bool{}
	for _, want := range access.hostRoutes(node) {
		wanted[want.Destination] = true
	}
	leads := map[int]netip.Addr{}
	for _, r := range s.routes {
		if wanted[r.Destination] {
			leads[r.Index] = r.Destination.Addr()
		}
	}
	return leads
}

func (s *hostState) readAddressing(host *kernel.Namespace) (err error) {
	if s.routes, err = host.TableRoutes(Table, nil); err != nil {
		return err
	}
	if s.rules, _, err = host.Rules(); err != nil {
		return err
	}
	s.localAddresses, err = host.LocalAddresses()
	return err
}

// Removes says that the plan takes something away that all pods share.
func (p HostPlan) Removes() bool { return len(p.removeRules) > 0 || len(p.dropStandIns) > 0 }

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

// PlanHost says what the host lacks for the accesses. complete says that these are complete of the node's: then the rules and the stand-in
// go with the last access.
func PlanHost(host *kernel.Namespace, accesses []Access, node Node, complete bool) (HostPlan, error) {
	state, err := readHost(host, accesses, node, complete)
	if err != nil {
		return HostPlan{}, err
	}
	return planHost(state, accesses, node, planScope{complete: complete}), nil
}

// TakeRoutes makes the host's routes to a new pod, also if they go to another one now.
func TakeRoutes(host *kernel.Namespace, access Access, node Node) error {
	state, err := readHost(host, []Access{access}, node, false)
	if err != nil {
		return err
	}
	if end, addr := state.otherPod(access, node); end.Name != "" {
		return fmt.Errorf("%w: %s is that of %s, by %s in the host", ErrAddressTaken, addr, decodeAlias(end.Alias).owner(), end.Name)
	}
	return planHost(state, []Access{access}, node, planScope{takeover: true}).Run(host)
}

// ErrAddressTaken says that another pod of this node has the address, and is reached by it. It may end soon.
var ErrAddressTaken = errors.New("another pod of this node has the address")

// otherPod returns the end of another pod that is reached by an address of the access, over a pair that is up.
func (s *hostState) otherPod(access Access, node Node) (netstate.Link, netip.Addr) {
	podEnd, leads := s.ends[access.HostName], s.routeTargets(access, node)
	for _, end := range s.ownEnds() {
		if addr, ok := leads[end.Index]; ok && end.Up && end.Index != podEnd.Index && !samePod(end.Alias, podEnd.Alias) {
			return end, addr
		}
	}
	return netstate.Link{}, netip.Addr{}
}

// planScope says what the accesses of a plan are: all of the node's, or one that takes over what others have.
type planScope struct{ complete, takeover bool }

// planHost is a pure function.
func planHost(state hostState, accesses []Access, node Node, scope planScope) HostPlan {
	var p HostPlan
	p.planRoutes(state, accesses, node, scope.takeover)
	accesses = state.withEnd(accesses)
	unused := scope.complete && len(state.ownEnds()) == 0 && len(accesses) == 0
	for _, ipv6 := range []bool{false, true} {
		needed := (!ipv6 || !node.NoIPv6) && slices.ContainsFunc(accesses, func(a Access) bool { return a.hasFamily(ipv6) })
		p.planRule(state, ipv6, needed, unused)
		p.planStandIn(state, ipv6, needed && node.standsIn(ipv6))
	}
	return p
}

func (p *HostPlan) addStep(format string, args ...any) {
	p.otherSteps = append(p.otherSteps, fmt.Sprintf(format, args...))
}

func (p *HostPlan) addRouteStep(format string, args ...any) {
	p.routeSteps = append(p.routeSteps, fmt.Sprintf("route to "+format, args...))
}

// planRoutes plans the routes to the pods. Two pods can have the same address for a moment, as when a new sandbox takes over: a
// route to either of them is right.
func (p *HostPlan) planRoutes(state hostState, accesses []Access, node Node, take bool) {
	upEnds := map[int]bool{}
	for _, link := range state.ownEnds() {
		upEnds[link.Index] = link.Up
	}
	current := map[netip.Prefix]kernel.TableRoute{}
	for _, r := range state.routes {
		if r.Priority == route(r.Destination, Table, hostProtocol).Priority {
			current[r.Destination] = r
		}
	}
	right, names := map[netip.Prefix]bool{}, map[int]string{}
	var living []Access
	for _, a := range accesses {
		end := state.ends[a.HostName]
		if !end.Up {
			p.Broken = append(p.Broken, a.HostName)
			continue
		}
		living, names[end.Index] = append(living, a), a.HostName
		for _, want := range a.hostRoutes(node) {
			r, ok := current[want.Destination]
			right[want.Destination] = right[want.Destination] || ok && r.Source == want.Source && (r.Index == end.Index || !take && upEnds[r.Index])
		}
	}
	wanted := map[netip.Prefix]bool{}
	for _, a := range living {
		for _, want := range a.hostRoutes(node) {
			if wanted[want.Destination] = true; right[want.Destination] {
				continue
			}
			right[want.Destination] = true
			index := state.ends[a.HostName].Index
			p.replace = append(p.replace, kernel.TableRoute{Route: want, Index: index})
			p.addRouteStep("%s through %s in the host: %s", want.Destination.Addr(), a.HostName, routeReason(current, want, index))
		}
	}
	for _, r := range state.routes {
		if name := names[r.Index]; name != "" && !wanted[r.Destination] {
			p.remove = append(p.remove, r)
			p.addRouteStep("%s through %s in the host: the pod does not have the address", r.Destination, name)
		}
	}
}

func routeReason(current map[netip.Prefix]kernel.TableRoute, want netstate.Route, index int) string {
	r, ok := current[want.Destination]
	switch {
	case !ok:
		return "it is missing"
	case r.Index != index:
		return "it goes through another device"
	case !r.Source.IsValid():
		return fmt.Sprintf("it has no source, not %s", want.Source)
	}
	return fmt.Sprintf("its source is %s, not %s", r.Source, want.Source)
}

func (p *HostPlan) planRule(state hostState, ipv6, needed, unused bool) {
	want := hostRule(ipv6)
	family := map[bool]string{false: "IPv4", true: "IPv6"}[ipv6]
	i := slices.IndexFunc(state.rules, func(r netstate.Rule) bool {
		r.Protocol = want.Protocol // Somebody may have added it by hand.
		return r.String() == want.String()
	})
	switch {
	case needed && i < 0 && !unused:
		p.addRules = append(p.addRules, want)
		p.addStep("%s rule to table %d in the host: it is missing", family, Table)
	case unused && i >= 0:
		p.removeRules = append(p.removeRules, state.rules[i])
		p.addStep("%s rule to table %d in the host: no pod needs it", family, Table)
	}
}

// planStandIn plans the node's stand-in. It stays while a route has it as its source: the route's pod may not be among those that are
// looked at.
func (p *HostPlan) planStandIn(state hostState, ipv6, needed bool) {
	addr := standIn(ipv6)
	exists := slices.ContainsFunc(state.localAddresses, func(a kernel.LocalAddress) bool { return a.Addr == addr })
	switch {
	case needed && !exists:
		p.standIns = append(p.standIns, addr)
		p.addStep("address %s of lo in the host: the node has no other one for its pods", addr)
	case !needed && exists && !p.sourceInUse(state, addr):
		p.dropStandIns = append(p.dropStandIns, addr)
		p.addStep("address %s of lo in the host: no route has it as its source", addr)
	}
}

// deprecated is IFA_F_DEPRECATED: nothing begins a connection from the address unless it is told to.
const deprecated = 0x20

// sourceInUse says that a route has the source, also after the plan.
func (p *HostPlan) sourceInUse(state hostState, source netip.Addr) bool {
	changed := map[netip.Prefix]bool{}
	for _, r := range slices.Concat(p.replace, p.remove) {
		changed[r.Destination] = true
	}
	return slices.ContainsFunc(state.routes, func(r kernel.TableRoute) bool { return r.Source == source && !changed[r.Destination] })
}

// loopback is the index of lo in every namespace.
const loopback = 1

// Run carries the plan out. It goes on after a failure, and returns all errors.
func (p HostPlan) Run(host *kernel.Namespace) error {
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
	failed := host.ReplaceRoutes(p.replace)
	errs = append(errs, failed, host.DeleteRoutes(p.remove))
	for _, r := range p.addRules {
		errs = append(errs, host.AddRule(r))
	}
	for _, r := range p.removeRules {
		errs = append(errs, host.DeleteRule(r))
	}
	failpoint.Here("after host rules")
	if failed != nil {
		return errors.Join(errs...) // The stand-in may be the source still.
	}
	for _, addr := range p.dropStandIns {
		errs = append(errs, host.DeleteAddress(loopback, netstate.Address{Prefix: singlePrefix(addr)}))
	}
	return errors.Join(errs...)
}

// RemoveUnused takes away what no pod of the node needs any more: the policy rules, and the stand-in. It does nothing while
// there is a pair of relink's. A route leads to one: all devices are read only if there is none.
func RemoveUnused(host *kernel.Namespace) error {
	state := hostState{ends: map[string]netstate.Link{}}
	if err := state.readAddressing(host); err != nil {
		return err
	}
	plan := planHost(state, nil, Node{}, planScope{complete: true})
	if !plan.Removes() {
		return nil
	}
	for _, r := range state.routes {
		if err := state.readEndAt(host, r.Index); err != nil || len(state.ownEnds()) > 0 {
			return err
		}
	}
	var err error
	if state.ends, err = host.Ends(); err != nil || len(state.ownEnds()) > 0 {
		return err
	}
	return plan.Run(host)
}

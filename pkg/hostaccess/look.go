package hostaccess

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
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

// Inspection is what Inspect has found.
type Inspection struct {
	// Differences say what is not as it should be, in words.
	Differences []string
	// Breaks are those of them that cut the path itself: an end is gone, another device or down, or an address, a route or a policy rule is
	// missing. What follows from the node is not among them.
	Breaks []string
	// OfNode is how many of them follow from the node, such as from a change of its addresses: nobody has changed the pod there.
	OfNode int
	// FilterErr says why the rules of iptables could not be looked at. The rest was.
	FilterErr error

	complete          bool
	podIndex, hostEnd int
	pod, host         []netstate.Difference
	staleRoutes       []kernel.TableRoute
	// nodeRoutes are the routes to the node's addresses that are missing.
	nodeRoutes        []kernel.TableRoute
	filterOK, foreign bool
}

// Inspect compares the pair, and everything of it in the sandbox, with what it should be for that node. It changes nothing.
func (p Pod) Inspect(node Node) (Inspection, error) {
	var found Inspection
	pod, err := p.Sandbox.CaptureEnd(p.Name, p.Host, p.parts(node))
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
		found.addBreak("%s is gone from the sandbox", p.Name)
		return found, nil
	case errors.Is(err, kernel.ErrUnsupported):
		found.foreign = true
		found.addBreak("%v: it is not relink's", err)
		return found, nil
	case err != nil:
		return found, err
	}
	host, ok, err := hostEnd(p.Host, p.HostName, p.Sandbox, keys(p.hostSettings(node)))
	if err != nil {
		return found, err
	}
	if !ok || !pod.Joined || pod.PeerIndex != host.Link.Index {
		// The pair of somebody else has the name. A pair of relink's own cannot lose one end only.
		found.foreign = true
		found.addBreak("%s is not the other end of %s in the host: it is not relink's", p.Name, p.HostName)
		return found, nil
	}
	found.complete, found.podIndex, found.hostEnd = true, pod.Link.Index, host.Link.Index
	conflicts, err := p.routeConflicts(node, pod.Interface)
	if err != nil {
		return found, err
	}
	p.compare(&found, node, pod.Interface, host.Interface, conflicts)
	p.inspectFilter(&found)
	return found, nil
}

// parts are those of the pod's end that Inspect reads. Of the routes that the access does not want, relink's own are read, up to
// maxStale of them.
func (p Pod) parts(node Node) kernel.EndParts {
	wanted, stale := p.wantedSlots(node), 0
	return kernel.EndParts{Settings: keys(podSettings(p.Access)), Rules: p.PreserveSource, Routes: func(r netstate.Route) bool {
		if wanted[r.Slot()] {
			return true
		}
		if r.Protocol != podProtocol || stale > maxStale {
			return false
		}
		stale++
		return true
	}}
}

// wantedSlots are those of the routes that the access wants.
func (p Pod) wantedSlots(node Node) map[netstate.Slot]bool {
	wanted := map[netstate.Slot]bool{}
	for _, r := range p.podInterface(node).Routes {
		wanted[r.Slot()] = true
	}
	return wanted
}

// compare fills in the differences of a whole pair.
func (p Pod) compare(found *Inspection, node Node, pod, host netstate.Interface, conflicts map[netip.Prefix]string) {
	want := p.podInterface(node)
	want.Routes = withoutConflicts(want.Routes, conflicts)
	wantHost := p.hostInterface(node)
	found.pod, found.host = netstate.Diff(want, pod), netstate.Diff(wantHost, host)
	for _, d := range found.host {
		found.addEndDifference(p.HostName+" in the host", d)
		if d.Field == netstate.FieldSetting {
			found.OfNode++ // udev may have set it.
		}
	}
	for _, d := range found.pod {
		if d.Field == netstate.FieldRoute && d.Live == "" && isNodeRoute(p.Access, *d.Route) {
			found.addDifference("%s: %s", p.Name, d)
			found.nodeRoutes = append(found.nodeRoutes, kernel.TableRoute{Route: *d.Route, Index: found.podIndex})
		} else {
			found.addEndDifference(p.Name, d)
		}
	}
	wanted := netstate.RoutesOf(want.Routes)
	for _, r := range pod.Routes {
		if len(found.staleRoutes) == maxStale {
			break // The pod makes them itself: the rest can wait.
		}
		if r.Protocol == podProtocol && !wanted.Has(r) {
			found.addDifference("%s: route %s is not needed any more", p.Name, r)
			found.staleRoutes = append(found.staleRoutes, kernel.TableRoute{Route: r, Index: found.podIndex})
		}
	}
	found.OfNode += len(found.nodeRoutes) + len(found.staleRoutes)
}

// maxStale is how many routes of a pod are taken away at once.
const maxStale = 64

// routeConflicts returns the destinations for which the pod has an equal route through another device, with the device's name. Such a
// route is the pod's own: relink makes none beside it. It looks only if a route is missing.
func (p Pod) routeConflicts(node Node, pod netstate.Interface) (map[netip.Prefix]string, error) {
	routes := netstate.RoutesOf(pod.Routes)
	if !slices.ContainsFunc(p.podInterface(node).Routes, func(r netstate.Route) bool { return !routes.Has(r) }) {
		return nil, nil
	}
	return p.readRouteConflicts(node)
}

func (p Pod) readRouteConflicts(node Node) (map[netip.Prefix]string, error) {
	wanted := p.wantedSlots(node)
	routes, err := p.Sandbox.TableRoutes(tableMain, func(r netstate.Route) bool { return wanted[r.Slot()] })
	if err != nil {
		return nil, err
	}
	conflicts := map[netip.Prefix]string{}
	for _, r := range routes {
		if name, err := p.Sandbox.NameOf(r.Index); err == nil && name != p.Name {
			conflicts[r.Destination] = name
		}
	}
	return conflicts, nil
}

// withoutConflicts leaves out the routes of the main table to these destinations.
func withoutConflicts(routes []netstate.Route, conflicts map[netip.Prefix]string) []netstate.Route {
	if len(conflicts) == 0 {
		return routes
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r netstate.Route) bool {
		_, conflict := conflicts[r.Destination]
		return conflict && r.Table == tableMain
	})
}

// isNodeRoute says that the route leads to an address of the node, and to nothing that the configuration names.
func isNodeRoute(a Access, r netstate.Route) bool {
	return r.Table == tableMain && r.Destination.IsSingleIP() &&
		!slices.Contains(a.Services, r.Destination) && !slices.Contains(a.Extra, r.Destination)
}

func (s *Inspection) addDifference(format string, args ...any) {
	s.Differences = append(s.Differences, fmt.Sprintf(format, args...))
}

// addEndDifference is addDifference for a difference of an end.
func (s *Inspection) addEndDifference(end string, d netstate.Difference) {
	switch d.Field {
	case netstate.FieldKind, netstate.FieldUp:
		s.addBreak("%s: %s", end, d)
		return
	case netstate.FieldAddress, netstate.FieldRoute, netstate.FieldRule:
		if d.Live == "" {
			s.addBreak("%s: %s", end, d)
			return
		}
	}
	s.addDifference("%s: %s", end, d)
}

// addBreak is addDifference for what cuts the path.
func (s *Inspection) addBreak(format string, args ...any) {
	s.addDifference(format, args...)
	s.Breaks = append(s.Breaks, s.Differences[len(s.Differences)-1])
}

func keys(settings map[string]string) []string { return slices.Sorted(maps.Keys(settings)) }

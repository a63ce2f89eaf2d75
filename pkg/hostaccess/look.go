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

	// foreign says that the pair is somebody else's. complete says that both ends are there.
	foreign, complete, wrongFilter bool
	podIndex, hostEnd              int
	differences                    []difference
	staleRoutes                    []kernel.TableRoute
}

// difference is one of a whole pair.
type difference struct {
	netstate.Difference
	// host says that it is the host's end. ofNode says that it follows from the node.
	host, ofNode bool
}

// Inspect compares the pair, and everything of it in the sandbox, with what it should be for that node. It changes nothing.
func (p Pod) Inspect(node Node) (found Inspection, err error) {
	foreign := func(format string, args ...any) (Inspection, error) {
		found.addBreak(format+": it is not relink's", args...)
		found.foreign = true
		return found, nil
	}
	pod, err := p.Sandbox.CaptureEnd(p.Name, p.Host, p.parts(node))
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
		found.addBreak("%s is gone from the sandbox", p.Name)
		return found, nil
	case errors.Is(err, kernel.ErrUnsupported):
		return foreign("%v", err)
	case err != nil:
		return found, err
	}
	host, ok, err := hostEnd(p.Host, p.HostName, p.Sandbox, keys(p.hostSettings(node)))
	if err != nil {
		return found, err
	}
	if !ok || !pod.Joined || pod.PeerIndex != host.Link.Index {
		// The pair of somebody else has the name. A pair of relink's own cannot lose one end only.
		return foreign("%s is not the other end of %s in the host", p.Name, p.HostName)
	}
	found.complete, found.podIndex, found.hostEnd = true, pod.Link.Index, host.Link.Index
	want := p.podInterface(node)
	// A route of the pod's own is looked for only if one is missing.
	if routes := netstate.RoutesOf(pod.Routes); slices.ContainsFunc(want.Routes, func(r netstate.Route) bool { return !routes.Has(r) }) {
		if want.Routes, err = p.withoutConflicts(want.Routes); err != nil {
			return found, err
		}
	}
	for _, d := range netstate.Diff(p.hostInterface(node), host.Interface) {
		// udev may have set a sysctl.
		found.add(p.HostName+" in the host", difference{Difference: d, host: true, ofNode: d.Field == netstate.FieldSetting})
	}
	for _, d := range netstate.Diff(want, pod.Interface) {
		found.add(p.Name, difference{Difference: d, ofNode: d.Field == netstate.FieldRoute && d.Live == "" && isNodeRoute(p.Access, *d.Route)})
	}
	found.addStale(p.Name, want.Routes, pod.Routes)
	p.inspectFilter(&found)
	return found, nil
}

// IsWhole says that both ends of the pair are there.
func (p Pod) IsWhole() bool {
	end, err := p.Sandbox.CaptureEnd(p.Name, p.Host, kernel.EndParts{})
	index, hostErr := p.Host.Index(p.HostName)
	return err == nil && hostErr == nil && end.Joined && end.PeerIndex == index
}

// add notes the difference of an end. What cuts the path is a break.
func (s *Inspection) add(end string, d difference) {
	s.differences = append(s.differences, d)
	missing := d.Live == "" && (d.Field == netstate.FieldAddress || d.Field == netstate.FieldRoute || d.Field == netstate.FieldRule)
	switch {
	case d.ofNode:
		s.OfNode++
	case missing, d.Field == netstate.FieldKind, d.Field == netstate.FieldUp:
		s.addBreak("%s: %s", end, d)
		return
	}
	s.addDifference("%s: %s", end, d)
}

// addStale notes relink's own routes that nobody needs.
func (s *Inspection) addStale(end string, want, live []netstate.Route) {
	wanted := netstate.RoutesOf(want)
	for _, r := range live {
		if len(s.staleRoutes) == maxStale {
			return // The pod makes them itself: the rest can wait.
		}
		if r.Protocol == podProtocol && !wanted.Has(r) {
			s.addDifference("%s: route %s is not needed any more", end, r)
			s.staleRoutes = append(s.staleRoutes, kernel.TableRoute{Route: r, Index: s.podIndex})
			s.OfNode++
		}
	}
}

func (s *Inspection) addDifference(format string, args ...any) {
	s.Differences = append(s.Differences, fmt.Sprintf(format, args...))
}

// addBreak is addDifference for what cuts the path.
func (s *Inspection) addBreak(format string, args ...any) {
	s.addDifference(format, args...)
	s.Breaks = append(s.Breaks, s.Differences[len(s.Differences)-1])
}

// maxStale is how many routes of a pod are taken away at once.
const maxStale = 64

// parts are those of the pod's end that Inspect reads. Of the routes that the access does not want, relink's own are read, up to
// maxStale of them.
func (p Pod) parts(node Node) kernel.EndParts {
	wanted, stale := slotsOf(p.podInterface(node).Routes), 0
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

func slotsOf(routes []netstate.Route) map[netstate.Slot]bool {
	slots := map[netstate.Slot]bool{}
	for _, r := range routes {
		slots[r.Slot()] = true
	}
	return slots
}

// withoutConflicts leaves out the routes of the main table for which the pod has an equal route through another device. Such a route is the
// pod's own: relink makes none beside it.
func (p Pod) withoutConflicts(wanted []netstate.Route) ([]netstate.Route, error) {
	slots := slotsOf(wanted)
	routes, err := p.Sandbox.TableRoutes(tableMain, func(r netstate.Route) bool { return slots[r.Slot()] })
	conflicts := map[netip.Prefix]bool{}
	for _, r := range routes {
		if name, err := p.Sandbox.NameOf(r.Index); err == nil && name != p.Name {
			conflicts[r.Destination] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(r netstate.Route) bool { return conflicts[r.Destination] && r.Table == tableMain }), err
}

// isNodeRoute says that the route leads to an address of the node, and to nothing that the configuration names.
func isNodeRoute(a Access, r netstate.Route) bool {
	return r.Table == tableMain && r.Destination.IsSingleIP() &&
		!slices.Contains(a.Services, r.Destination) && !slices.Contains(a.Extra, r.Destination)
}

func keys(settings map[string]string) []string { return slices.Sorted(maps.Keys(settings)) }

package hostaccess

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Pod is the sandbox's part of an access, and what it takes to compare and to mend it.
type Pod struct {
	Access
	// WithoutFilter leaves out the rules of iptables: to look at them takes several processes.
	WithoutFilter bool
	// Host and Sandbox are open for as long as the Pod is used.
	Host, Sandbox *kernel.Namespace
}

// Seen is what Look has found.
type Seen struct {
	// Differences say what is not as it should be, in words.
	Differences []string
	// Cuts are those of them that cut the path itself: an end is gone, another device or down, or an address, a route or a policy rule is
	// missing. What follows from the node is not among them.
	Cuts []string
	// NodeOnly says that all of them follow from the node, such as from a change of its addresses: nobody has changed the
	// pod.
	NodeOnly bool
	// FilterErr says why the rules of iptables could not be looked at. The rest was.
	FilterErr error

	whole             bool
	podIndex, hostEnd int
	pod, host         []netstate.Difference
	stale             []kernel.TableRoute
	// nodes are the routes to the node's addresses that are missing.
	nodes             []kernel.TableRoute
	filtered, foreign bool
}

// Look compares the pair, and everything of it in the sandbox, with what it should be for that node. It changes nothing.
func (p Pod) Look(node Node) (Seen, error) {
	var seen Seen
	pod, err := p.Sandbox.CaptureEnd(p.Name, p.Host, p.parts(node))
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
		seen.cut("%s is gone from the sandbox", p.Name)
		return seen, nil
	case errors.Is(err, kernel.ErrUnsupported):
		seen.foreign = true
		seen.cut("%v: it is not relink's", err)
		return seen, nil
	case err != nil:
		return seen, err
	}
	host, err := p.Host.CaptureEndAlone(p.HostName, p.Sandbox, keys(p.hostSettings(node)))
	if err != nil && !errors.Is(err, kernel.ErrNoDevice) && !errors.Is(err, kernel.ErrUnsupported) {
		return seen, err
	}
	if err != nil || !pod.Joined || pod.PeerIndex != host.Link.Index {
		// The pair of somebody else has the name. A pair of relink's own cannot lose one end only.
		seen.foreign = true
		seen.cut("%s is not the other end of %s in the host: it is not relink's", p.Name, p.HostName)
		return seen, nil
	}
	seen.whole, seen.podIndex, seen.hostEnd = true, pod.Link.Index, host.Link.Index
	taken, err := p.takenByOthers(node, pod.Interface)
	if err != nil {
		return seen, err
	}
	p.compare(&seen, node, pod.Interface, host.Interface, taken)
	p.lookAtFilter(&seen)
	return seen, nil
}

// parts are those of the pod's end that Look reads. Of the routes that the access does not want, relink's own are read, up to
// mostStale of them.
func (p Pod) parts(node Node) kernel.EndParts {
	wanted, stale := map[place]bool{}, 0
	for _, r := range p.inPod(node).Routes {
		wanted[placeOf(r)] = true
	}
	return kernel.EndParts{Settings: keys(podSettings(p.Access)), Rules: p.PreserveSource, Routes: func(r netstate.Route) bool {
		if wanted[placeOf(r)] {
			return true
		}
		if r.Protocol != podProtocol || stale > mostStale {
			return false
		}
		stale++
		return true
	}}
}

// place is where a route can be. A table has many there: of several metrics, for example.
type place struct {
	destination netip.Prefix
	table       uint32
	priority    uint32
}

func placeOf(r netstate.Route) place { return place{r.Destination, r.Table, r.Priority} }

// compare fills in the differences of a whole pair.
func (p Pod) compare(seen *Seen, node Node, pod, host netstate.Interface, taken map[netip.Prefix]string) {
	want := p.inPod(node)
	want.Routes = without(want.Routes, taken)
	wantHost := p.inHost(node)
	seen.pod, seen.host = netstate.Diff(want, pod), netstate.Diff(wantHost, host)
	for _, d := range seen.host {
		seen.tell(p.HostName+" in the host", d)
	}
	// The sysctls of the host's end are the node's: udev may have set them.
	nodes := !slices.ContainsFunc(seen.host, func(d netstate.Difference) bool { return d.Field != netstate.FieldSetting })
	for _, d := range seen.pod {
		if d.Field == netstate.FieldRoute && d.Have == "" && isNodes(p.Access, *d.Route) {
			seen.say("%s: %s", p.Name, d)
			seen.nodes = append(seen.nodes, kernel.TableRoute{Route: *d.Route, Index: seen.podIndex})
		} else {
			seen.tell(p.Name, d)
			nodes = false
		}
	}
	wanted := netstate.RoutesOf(want.Routes)
	for _, r := range pod.Routes {
		if len(seen.stale) == mostStale {
			break // The pod makes them itself: the rest can wait.
		}
		if r.Protocol == podProtocol && !wanted.Has(r) {
			seen.say("%s: route %s is not needed any more", p.Name, r)
			seen.stale = append(seen.stale, kernel.TableRoute{Route: r, Index: seen.podIndex})
		}
	}
	seen.NodeOnly = nodes && len(seen.Differences) > 0
}

// mostStale is how many routes of a pod are taken away at once.
const mostStale = 64

// takenByOthers returns the destinations for which the pod has an equal route through another device, with the device's name. Such a
// route is the pod's own: relink makes none beside it. It looks only if a route is missing.
func (p Pod) takenByOthers(node Node, pod netstate.Interface) (map[netip.Prefix]string, error) {
	there := netstate.RoutesOf(pod.Routes)
	if !slices.ContainsFunc(p.inPod(node).Routes, func(r netstate.Route) bool { return !there.Has(r) }) {
		return nil, nil
	}
	return p.routesOfOthers(node)
}

func (p Pod) routesOfOthers(node Node) (map[netip.Prefix]string, error) {
	wanted := map[place]bool{}
	for _, r := range p.inPod(node).Routes {
		wanted[placeOf(r)] = true
	}
	routes, err := p.Sandbox.TableRoutes(tableMain, func(r netstate.Route) bool { return wanted[placeOf(r)] })
	if err != nil {
		return nil, err
	}
	taken := map[netip.Prefix]string{}
	for _, r := range routes {
		if name, err := p.Sandbox.NameOf(r.Index); err == nil && name != p.Name {
			taken[r.Destination] = name
		}
	}
	return taken, nil
}

// without leaves out the routes of the main table to these destinations.
func without(routes []netstate.Route, taken map[netip.Prefix]string) []netstate.Route {
	if len(taken) == 0 {
		return routes
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r netstate.Route) bool {
		_, is := taken[r.Destination]
		return is && r.Table == tableMain
	})
}

// isNodes says that the route leads to an address of the node, and to nothing that the configuration names.
func isNodes(a Access, r netstate.Route) bool {
	return r.Table == tableMain && r.Destination.IsSingleIP() &&
		!slices.Contains(a.Services, r.Destination) && !slices.Contains(a.Extra, r.Destination)
}

func (s *Seen) say(format string, args ...any) {
	s.Differences = append(s.Differences, fmt.Sprintf(format, args...))
}

// tell is say for a difference of an end.
func (s *Seen) tell(end string, d netstate.Difference) {
	switch d.Field {
	case netstate.FieldKind, netstate.FieldUp:
		s.cut("%s: %s", end, d)
		return
	case netstate.FieldAddress, netstate.FieldRoute, netstate.FieldRule:
		if d.Have == "" {
			s.cut("%s: %s", end, d)
			return
		}
	}
	s.say("%s: %s", end, d)
}

// cut is say for what cuts the path.
func (s *Seen) cut(format string, args ...any) {
	s.say(format, args...)
	s.Cuts = append(s.Cuts, s.Differences[len(s.Differences)-1])
}

func keys(settings map[string]string) (all []string) {
	for key := range settings {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

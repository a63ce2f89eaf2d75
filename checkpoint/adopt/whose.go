package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Origin is who has made an interface that is stacked on a device of the host.
type Origin string

// The origins.
const (
	// Attached: a CNI plugin, or something like it, for the pod.
	Attached Origin = ""
	// PodsOwn: a process in the pod, on top of an attachment. The kernel reports the
	// attachment's parent as that of a macvlan on a macvlan.
	PodsOwn Origin = "the pod's own"
	// Unclear: nobody can tell which of several was attached.
	Unclear Origin = "unclear"
)

// neighbour is another interface of the same sandbox that is on the same device of the
// host and of a kind that the pod can stack the first one on.
type neighbour struct {
	name string
	// attached says that it is known to be: by a cache, a checkpoint or the operator.
	attached bool
}

// originOf decides, purely, who has made the interface name, which no cache, checkpoint or
// operator knows. What is alone on its parent comes from outside: a pod can't reach the
// host's devices but through what it was given.
func originOf(name, parent string, neighbours []neighbour) (Origin, string) {
	if len(neighbours) == 0 {
		return Attached, ""
	}
	known := slices.IndexFunc(neighbours, func(n neighbour) bool { return n.attached })
	if known >= 0 {
		return PodsOwn, fmt.Sprintf("no CNI cache has it, and it is on the parent of %s, %s: it is taken to be the pod's own. If it was attached: relink capture --attached %s",
			neighbours[known].name, parent, name)
	}
	var names []string
	for _, n := range neighbours {
		names = append(names, n.name)
	}
	return Unclear, fmt.Sprintf("no CNI cache has it, and it is on one parent, %s, with %s: the pod can have made one on top of the other. Name the one that was attached: relink capture --attached %s",
		parent, strings.Join(names, ", "), name)
}

// family returns the kinds that a link of this kind can be stacked on without being
// reported on top of them.
func family(kind string) string {
	switch kind {
	case netstate.KindMacvlan, netstate.KindMacvtap:
		return netstate.KindMacvlan
	case netstate.KindIPvlan:
		return netstate.KindIPvlan
	}
	return ""
}

// known says that a checkpoint or the operator knows the interface.
func (l *look) known(f Found) bool {
	return slices.Contains(l.attached, f.Live.Link.Name) ||
		slices.ContainsFunc(l.records, func(r checkpoint.Record) bool { return isOf(r, f) })
}

// whose decides who has made an interface on a device of the host that no cache has.
func (l *look) whose(namespace *kernel.Namespace, own netstate.Devices, f Found) (Origin, string, error) {
	of := family(f.Live.Link.Kind)
	if of == "" || l.known(f) {
		return Attached, "", nil
	}
	parent := f.Live.Parents[0].Name
	neighbours := l.gone(f, own)
	for _, d := range own {
		if d.Name == f.Live.Link.Name || family(d.Kind) != of {
			continue
		}
		live, err := kernel.Capture(l.host, namespace, l.devices, d.Name, kernel.Extent{})
		if err != nil && !isNone(err) {
			_, live, err = l.retry(namespace, d.Name)
		}
		if isNone(err) {
			continue
		}
		if err != nil {
			return "", "", fmt.Errorf("%s: %s: %w", namespace.Path(), d.Name, err)
		}
		if live.ParentsInSandbox || live.Parents[0].Name != parent {
			continue
		}
		other := Found{Namespace: f.Namespace, Live: live, Owner: ownerOf(f.Namespace, live.Link, l.cache)}
		neighbours = append(neighbours, neighbour{name: d.Name, attached: other.Named || l.known(other)})
	}
	origin, why := originOf(f.Live.Link.Name, parent, neighbours)
	return origin, why, nil
}

// gone returns the attachments on the same parent that the sandbox has lost.
func (l *look) gone(f Found, own netstate.Devices) []neighbour {
	var lost []neighbour
	for _, r := range l.records {
		link := r.Interface.Link
		if r.Namespace.Same(f.Namespace) != nil || family(link.Kind) != family(f.Live.Link.Kind) || r.Interface.ParentsInSandbox ||
			r.Interface.Parents[0].Name != f.Live.Parents[0].Name {
			continue
		}
		if _, there := own.ByName(link.Name); !there {
			lost = append(lost, neighbour{name: link.Name, attached: true})
		}
	}
	return lost
}

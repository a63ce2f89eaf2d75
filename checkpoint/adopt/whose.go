package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Origin is who made an interface on a device of the host.
type Origin string

// The origins.
const (
	// Attached: a CNI plugin made it for the pod, or something like a plugin.
	Attached Origin = ""
	// PodsOwn: a process in the pod stacked it on an attachment. The kernel then reports the
	// attachment's parent as its parent.
	PodsOwn Origin = "the pod's own"
	// Unclear: nobody can tell which of several interfaces was attached.
	Unclear Origin = "unclear"
)

// neighbour is another interface of the sandbox on the same device of the host. The pod could have
// stacked the first one on it.
type neighbour struct {
	name string
	// attached says that a cache, a checkpoint or the operator knows it as attached.
	attached bool
}

// neighboursNamed is how many neighbours a message names: a pod can have thousands.
const neighboursNamed = 5

// originOf decides who made the interface name. It is a pure function. No cache, no checkpoint and
// no operator knows the interface. An interface that is alone on its parent comes from outside: a
// pod reaches the host's devices only through what it was given.
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
	for _, n := range neighbours[:min(len(neighbours), neighboursNamed)] {
		names = append(names, n.name)
	}
	if more := len(neighbours) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return Unclear, fmt.Sprintf("no CNI cache has it, and it is on one parent, %s, with %s: the pod can have made one on top of the other. Name the one that was attached: relink capture --attached %s",
		parent, strings.Join(names, ", "), name)
}

// family returns the kind of links that can carry a link of this kind unseen: the kernel reports
// their parent as its parent.
func family(kind string) string {
	switch kind {
	case netstate.KindMacvlan, netstate.KindMacvtap:
		return netstate.KindMacvlan
	case netstate.KindIPvlan:
		return netstate.KindIPvlan
	}
	return ""
}

// known says that a checkpoint or the operator knows the device.
func (r *room) known(name string, index int) bool {
	return r.records.recorded(index) || slices.Contains(r.attached, name)
}

// stack is a device of the host, and the kind of what the sandbox has on it.
type stack struct{ parent, family string }

// whose decides who made an interface on a device of the host. Neither a cache nor a checkpoint has
// the interface.
func (r *room) whose(f Found) (Origin, string, error) {
	link, parent := f.Live.Link, f.Live.Parents[0].Name
	of := family(link.Kind)
	if of == "" || r.known(link.Name, link.Index) {
		return Attached, "", nil
	}
	if err := r.lookAtStacks(); err != nil {
		return "", "", err
	}
	neighbours := slices.DeleteFunc(slices.Clone(r.stacks[stack{parent, of}]), func(n neighbour) bool { return n.name == link.Name })
	origin, why := originOf(link.Name, parent, neighbours)
	return origin, why, nil
}

// lookAtStacks finds out once what the sandbox has on each device of the host, and what it has lost
// there.
func (r *room) lookAtStacks() error {
	if r.stacks != nil {
		return nil
	}
	parents, err := r.namespace.ParentsIn(r.host)
	if err != nil {
		return fmt.Errorf("%s: %w", r.namespace.Path(), err)
	}
	host, err := r.host.Devices()
	if err != nil {
		return err
	}
	r.stacks = map[stack][]neighbour{}
	for _, lost := range r.records.lost() {
		// The parents of a torn checkpoint may not be readable.
		if i := lost.Interface; family(i.Link.Kind) != "" && !i.ParentsInSandbox && len(i.Parents) > 0 {
			at := stack{i.Parents[0].Name, family(i.Link.Kind)}
			r.stacks[at] = append(r.stacks[at], neighbour{name: i.Link.Name, attached: true})
		}
	}
	for _, d := range r.own {
		if on, ok := host.ByIndex(parents[d.Index]); ok && family(d.Kind) != "" {
			at := stack{on.Name, family(d.Kind)}
			r.stacks[at] = append(r.stacks[at], neighbour{name: d.Name, attached: r.isAttached(d)})
		}
	}
	return nil
}

// isAttached says that a cache, a checkpoint or the operator knows the device.
func (r *room) isAttached(d netstate.LiveDevice) bool {
	owner := ownerOf(r.namespace.Identity(), netstate.Link{Name: d.Name, MAC: d.MAC}, r.cache)
	return owner.Named || r.known(d.Name, d.Index)
}

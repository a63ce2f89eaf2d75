package capture

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// sibling is another interface of the sandbox on the same device of the host. The pod could have
// stacked the first one on it.
type sibling struct {
	name string
	// attached says that a cache, a checkpoint or the operator knows it as attached.
	attached bool
}

// maxNamed is how many neighbours a message names: a pod can have thousands.
const maxNamed = 5

// originOf decides who made the interface name. It is a pure function. No cache, no checkpoint and
// no operator knows the interface. An interface that is alone on its parent comes from outside: a
// pod reaches the host's devices only through what it was given. A process in the pod can have stacked any other on an attachment: the kernel
// then reports the attachment's parent as its parent.
func originOf(name, parent string, neighbours []sibling) (change.State, string) {
	if len(neighbours) == 0 {
		return "", ""
	}
	index := slices.IndexFunc(neighbours, func(n sibling) bool { return n.attached })
	if index >= 0 {
		return Skipped, fmt.Sprintf("no CNI cache has it, and it is on the parent of %s, %s: it is taken to be the pod's own. If it was attached: relink capture --attached %s",
			neighbours[index].name, parent, printable.Command(name))
	}
	var names []string
	for _, n := range neighbours {
		names = append(names, n.name)
	}
	return change.Refused, fmt.Sprintf("no CNI cache has it, and it is on one parent, %s, with %s: the pod can have made one on top of the other. Name the one that was attached: relink capture --attached %s",
		parent, printable.First(names, maxNamed, ", "), printable.Command(name))
}

// stackKind returns the kind of links that can carry a link of this kind unseen: the kernel reports
// their parent as its parent.
func stackKind(kind string) string {
	switch kind {
	case netstate.KindMacvlan, netstate.KindMacvtap:
		return netstate.KindMacvlan
	case netstate.KindIPvlan:
		return netstate.KindIPvlan
	}
	return ""
}

// isKnown says that a checkpoint or the operator knows the device.
func (r *sandboxInspector) isKnown(name string, index int) bool {
	return r.records.recorded(index) || slices.Contains(r.attached, name)
}

// hostStack is a device of the host, and the kind of what the sandbox has on it.
type hostStack struct{ parent, kind string }

// findOrigin decides who made an interface on a device of the host. Neither a cache nor a checkpoint has
// the interface.
func (r *sandboxInspector) findOrigin(f LiveInterface) (change.State, string, error) {
	link, parent := f.Live.Link, f.Live.Parents[0].Name
	kind := stackKind(link.Kind)
	if kind == "" || r.isKnown(link.Name, link.Index) {
		return "", "", nil
	}
	if err := r.readStacks(); err != nil {
		return "", "", err
	}
	neighbours := slices.DeleteFunc(slices.Clone(r.stacks[hostStack{parent, kind}]), func(n sibling) bool { return n.name == link.Name })
	origin, reason := originOf(link.Name, parent, neighbours)
	return origin, reason, nil
}

// readStacks finds out once what the sandbox has on each device of the host, and what it has lost
// there.
func (r *sandboxInspector) readStacks() error {
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
	r.stacks = map[hostStack][]sibling{}
	add := func(parent, kind string, s sibling) {
		if key := (hostStack{parent, stackKind(kind)}); key.kind != "" {
			r.stacks[key] = append(r.stacks[key], s)
		}
	}
	for _, recorded := range r.records.records {
		_, exists := r.records.device(recorded)
		// The parents of a torn checkpoint may not be readable.
		if i := recorded.Interface; !exists && !i.ParentsInSandbox && len(i.Parents) > 0 {
			add(i.Parents[0].Name, i.Link.Kind, sibling{name: i.Link.Name, attached: true})
		}
	}
	for _, d := range r.sandboxDevices {
		if parent, ok := host.ByIndex(parents[d.Index]); ok {
			add(parent.Name, d.Kind, sibling{name: d.Name, attached: r.isAttached(d)})
		}
	}
	return nil
}

// isAttached says that a cache, a checkpoint or the operator knows the device.
func (r *sandboxInspector) isAttached(d netstate.LiveDevice) bool {
	owner := identify(r.namespace.Identity(), r.sandboxDevices, netstate.Link{Name: d.Name, MAC: d.MAC}, r.cache, nil)
	return owner.InCache || r.isKnown(d.Name, d.Index)
}

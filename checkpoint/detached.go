package checkpoint

import (
	"errors"

	"github.com/relink-cni/relink/pkg/netstate"
)

// WithoutDetached returns the interface of the record without the routes that another interface
// of the sandbox took with it: those through several interfaces one of which neither exists nor
// has a checkpoint any more, so that it has been detached; and those that only have an address
// of this one as source, where theirs is not there, as they are for its own checkpoint.
func (s *Store) WithoutDetached(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	d := &detached{store: s, exists: exists, containerID: r.Attachment.ContainerID, known: map[string]bool{}}
	left := r.Interface
	left.Routes = nil
	for _, route := range r.Interface.Routes {
		if !d.took(route) {
			left.Routes = append(left.Routes, route)
		}
	}
	return left, d.err
}

// detached looks for interfaces of a sandbox.
type detached struct {
	store       *Store
	exists      func(name string) (bool, error)
	containerID string
	known       map[string]bool
	err         error
}

func (d *detached) took(route netstate.Route) bool {
	for _, name := range route.Devices() {
		if _, ok := d.known[name]; !ok {
			d.known[name] = d.gone(name, route.Device == "")
		}
		if d.known[name] {
			return true
		}
	}
	return false
}

// gone says that there is no such interface, and if recorded is asked for, no checkpoint of it.
func (d *detached) gone(name string, recorded bool) bool {
	there, err := d.exists(name)
	if err != nil || there {
		d.err = errors.Join(d.err, err)
		return false
	}
	if !recorded {
		return true
	}
	_, err = d.store.Load(d.containerID, name)
	return errors.Is(err, ErrNone)
}

package checkpoint

import (
	"errors"

	"github.com/relink-cni/relink/pkg/netstate"
)

// WithoutDetached returns the interface of the record without the routes through other
// interfaces of the sandbox that neither exist nor have a checkpoint: they have been detached,
// and the kernel has taken the routes away with them.
func (s *Store) WithoutDetached(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	var failed error
	gone := func(name string) bool {
		there, err := exists(name)
		if err != nil || there {
			failed = errors.Join(failed, err)
			return false
		}
		_, err = s.Load(r.Attachment.ContainerID, name)
		return errors.Is(err, ErrNone)
	}
	without := r.Interface.Without(gone)
	return without, failed
}

package checkpoint

import (
	"errors"
	"slices"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Effective returns what still has to exist of the record's interface. Other interfaces of the sandbox
// come and go, so it leaves out:
//
//   - an address that has expired, and the routes that need it;
//   - a route through several interfaces, if one of them is gone and has no checkpoint. That one
//     was detached, and the kernel removed the route with it;
//   - a route of another interface that has an address of this one as source, if the other is
//     gone. The other's checkpoint has the route.
func (s *Store) Effective(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	var failed error
	isPresent := remember(func(name string) bool {
		present, err := exists(name)
		failed = errors.Join(failed, err)
		return present || err != nil
	})
	isRecorded := remember(func(name string) bool { // Even by a checkpoint that cannot be read.
		_, err := s.Load(r.Attachment.ContainerID, name)
		return !errors.Is(err, ErrNoCheckpoint)
	})
	wanted := r.Interface.Unexpired(uptime)
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), func(route netstate.Route) bool {
		return slices.ContainsFunc(route.Devices(), func(name string) bool {
			return !isPresent(name) && (route.Device != "" || !isRecorded(name))
		})
	})
	return wanted, failed
}

// remember returns ask, which is called only once for each name.
func remember(ask func(name string) bool) func(name string) bool {
	answers := map[string]bool{}
	return func(name string) bool {
		answer, known := answers[name]
		if !known {
			answer = ask(name)
			answers[name] = answer
		}
		return answer
	}
}

package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Replacement is a new interface beside the one that it is to replace. It has the MAC, the MTU, the
// options and the settings of the old one, another parent, and a temporary name. It is down until
// TakePlace.
type Replacement struct {
	sandbox *Namespace
	want    netstate.Interface
	// Old and New are the indices of the two interfaces.
	Old, New int
	// temporary is the name of the new one until TakePlace. retired is the name of the old one
	// afterwards.
	temporary, retired string
}

// BuildReplacement makes an interface in sandbox that can take the place of the one with the index old. want describes
// the new interface, with the final name. It gets the index want.Link.Index if that is not 0 and is free. parentIndex
// is the parent's index in parentAt. The old interface works on undisturbed. If BuildReplacement fails, it removes what
// it made.
func BuildReplacement(parentAt, sandbox *Namespace, parentIndex, old int, want netstate.Interface) (*Replacement, error) {
	r := &Replacement{
		sandbox: sandbox, want: want, Old: old,
		temporary: temporaryName(highIndex + rand.IntN(highIndex)), retired: temporaryName(highIndex + rand.IntN(highIndex)),
	}
	link := want.Link
	link.Name = r.temporary
	var err error
	if r.New, err = Create(parentAt, sandbox, parentIndex, link); err != nil {
		return nil, fmt.Errorf("build beside %s: %w", want.Link.Name, err)
	}
	if err := r.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("build beside %s: %w", want.Link.Name, err), r.Discard())
	}
	return r, nil
}

// prepare does to the new interface what can be done before it takes the place of the old one.
func (r *Replacement) prepare() error {
	early, _ := settingsInOrder(r.want.Settings, knownState)
	link := r.want.Link
	link.Name = r.temporary
	errs := []error{r.sandbox.writeSettings(r.temporary, early)}
	var batch []rtnl.Message
	if hasAttributes(link) {
		attributes, err := setAttributes(r.New, link)
		errs, batch = append(errs, err), append(batch, attributes)
	}
	if !link.SharesMAC() { // With another MAC it gets another link-local address.
		own, err := r.sandbox.linkLocal(r.Old)
		errs = append(errs, err)
		batch = append(batch, addAddresses(r.New, own, true)...)
	}
	return errors.Join(append(errs, r.sandbox.socket.Run(batch...))...)
}

// knownState says that the pod had all of this before.
var knownState = ConfigureOptions{Known: true}

// linkLocal returns the link-local addresses that the kernel made for the device. A new interface
// gets them before it goes up. Otherwise the kernel would probe for them, would hear the old
// interface answer, and would not use them.
func (n *Namespace) linkLocal(index int) (own []netstate.Address, err error) {
	err = n.eachAddress(index, []int{unix.AF_INET6}, func() { own = nil }, func(a netstate.Address, by maker) {
		if by == theKernel && a.Prefix.Addr().IsLinkLocalUnicast() {
			own = append(own, a)
		}
	})
	return own, err
}

// TakePlace gives the new interface the name, the addresses, the routes and everything else of the old one. The old one
// gets a temporary name. switched says that the new interface has the name: even then, TakePlace may have failed to add
// something. If switched is false, the old interface has its name, but may lack routes that went while it was down.
//
// Since Linux 6.2 an interface that is up can be renamed. Then both are up until Retire, so the pod always has an
// interface: it sends by the new one, and still receives by the old one. Between TakePlace and Retire, the caller
// announces to the neighbours. On older kernels, and for a port of a bridge or VRF, the old interface goes down first:
// two ports of one bridge on one wire would make a loop.
func (r *Replacement) TakePlace() (switched bool, err error) {
	after, err := r.takeover()
	if r.overlaps() {
		err = errors.Join(err, r.sandbox.afterwards(rename(r.Old, r.retired, false), after))
	} else {
		// The renaming of the new one fails as long as the old one has the name.
		down := setDown(r.Old, r.want.Link.Name)
		err = errors.Join(err, r.sandbox.afterwards(down, append([]rtnl.Message{rename(r.Old, r.retired, false)}, after...)))
	}
	index, lookErr := r.sandbox.Index(r.want.Link.Name)
	if lookErr != nil || index != r.New {
		return false, errors.Join(err, r.takeBack())
	}
	if r.overlaps() {
		err = errors.Join(err, r.unaddress())
	}
	return true, err
}

// unaddress removes the addresses from the old interface. Its routes to their networks go with them. Then the pod sends
// by the routes of the new interface.
func (r *Replacement) unaddress() error {
	var batch []rtnl.Message
	for _, a := range r.want.Addresses {
		batch = append(batch, deleteAddress(r.Old, a))
	}
	return r.sandbox.socket.Run(batch...)
}

// Retire sets the old interface down if it is up. That takes an RCU grace period. During it, the kernel drops packets
// that come in by the old interface.
func (r *Replacement) Retire() error {
	if !r.overlaps() {
		return nil
	}
	return r.sandbox.socket.Run(setDown(r.Old, r.retired))
}

// afterwards sends first, and the others if that succeeds.
func (n *Namespace) afterwards(first rtnl.Message, others []rtnl.Message) error {
	failed, more := n.socket.RunAfter(first, others...)
	return errors.Join(failed, more)
}

// overlaps says whether both interfaces are up at the same time for a moment.
func (r *Replacement) overlaps() bool {
	return renamesLive() && r.want.Master == nil && r.want.Link.Up
}

// renamesLive says whether the kernel renames a device that is up (since 6.2; "net/core: Allow live
// renaming when an interface is up").
// Tests try both ways.
var renamesLive = sync.OnceValue(func() bool { return kernelAtLeast(6, 2) && !failpoint.OlderKernel() })

// takeover returns the requests by which the new interface takes over, from its name on.
func (r *Replacement) takeover() ([]rtnl.Message, error) {
	batch := []rtnl.Message{rename(r.New, r.want.Link.Name, r.want.Link.Up && r.want.Master == nil)}
	var errs []error
	if r.want.Master != nil {
		enslave, err := r.sandbox.enslave(r.New, *r.want.Master)
		errs, batch = append(errs, err), append(batch, enslave...)
		if r.want.Link.Up {
			batch = append(batch, setUp(r.New, r.want.Link.Name))
		}
	}
	_, late := settingsInOrder(r.want.Settings, knownState)
	want := r.want
	// A route of another interface stays, because its source address is always there.
	want.Routes = slices.DeleteFunc(slices.Clone(want.Routes), func(route netstate.Route) bool { return route.Device != "" })
	after, err := r.sandbox.afterUp(r.New, want, true)
	return slices.Concat(batch, announcing(r.New, late), addAddresses(r.New, want.Addresses, true), after), errors.Join(append(errs, err)...)
}

// rename returns the request that renames the device of that index, and then sets it up if asked.
func rename(index int, name string, up bool) rtnl.Message {
	request := setLink(index, 0, 0)
	if up {
		request = setLink(index, unix.IFF_UP, unix.IFF_UP)
	}
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	return rtnl.Message{Request: request, What: fmt.Sprintf("rename the device with index %d to %s", index, name)}
}

// takeBack gives the old interface its name back, and deletes the new one.
func (r *Replacement) takeBack() error {
	errs := []error{r.Discard()}
	if name, err := r.sandbox.NameOf(r.Old); err != nil || name != r.want.Link.Name {
		errs = append(errs, err, r.sandbox.socket.Run(rename(r.Old, r.want.Link.Name, false)))
	}
	if r.want.Link.Up {
		errs = append(errs, r.sandbox.socket.Run(setUp(r.Old, r.want.Link.Name)))
	}
	return errors.Join(errs...)
}

// Discard deletes the new interface. It is for one that has not taken the old one's place.
func (r *Replacement) Discard() error { return r.sandbox.deleteIndex(r.New, r.temporary) }

// deleteIndex deletes the device of that index. It is no error if it is gone.
func (n *Namespace) deleteIndex(index int, name string) error {
	if err := n.socket.Run(deleteLink(index, name)); !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// DeleteRetired deletes the replaced interface with that index. It leaves alone a device without a temporary name,
// because that was not replaced. deleted says whether there was one.
func (n *Namespace) DeleteRetired(index int) (deleted bool, err error) {
	device, err := n.Device(index)
	if errors.Is(err, ErrNoDevice) || err == nil && (!temporaryForm.MatchString(device.Name) || !creates(device.Kind)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if device.Up { // A kill came between the two halves of TakePlace.
		err = n.socket.Run(setDown(index, device.Name))
	}
	return true, errors.Join(err, n.deleteIndex(index, device.Name))
}

// GiveBack gives the interface with that index its name back, if a kill came before its Replacement had the name. It
// leaves alone a device without a temporary name. It does nothing if the name is taken.
func (n *Namespace) GiveBack(index int, name string) error {
	device, err := n.Device(index)
	if errors.Is(err, ErrNoDevice) || err == nil && !temporaryForm.MatchString(device.Name) {
		return nil
	}
	if err != nil {
		return err
	}
	if there, err := n.Exists(name); err != nil || there {
		return err
	}
	return n.socket.Run(rename(index, name, false))
}

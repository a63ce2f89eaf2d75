package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Replacement is a new interface beside the one that it is to replace. It has the MAC, the MTU, the
// options and the settings of the old one, another parent, and a temporary name. It is down until
// Swap.
type Replacement struct {
	sandbox *Namespace
	want    netstate.Interface
	// Old and New are the indices of the two interfaces.
	Old, New int
	// temporary is the name of the new one until Swap. retired is the name of the old one
	// afterwards.
	temporary, retired string
	// removed are the routes that were taken off the old one. disturbed says that the old one does not work any more as it did.
	removed   []netstate.Route
	disturbed bool
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
func (r *Replacement) prepare() (err error) {
	early := netstate.Interface{Link: r.want.Link}
	early.Link.Name, early.Link.Up = r.temporary, false
	early.Settings, _ = divideSettings(r.New, r.want.Settings)
	if !early.Link.SharesMAC() { // With another MAC it gets another link-local address.
		early.Addresses, err = r.sandbox.linkLocal(r.Old)
	}
	return errors.Join(err, r.sandbox.Configure(r.New, early, true))
}

// linkLocal returns the link-local addresses that the kernel made for the device. A new interface
// gets them before it goes up. Otherwise the kernel would probe for them, would hear the old
// interface answer, and would not use them.
func (n *Namespace) linkLocal(index int) (addresses []netstate.Address, err error) {
	live, err := n.liveAddresses(index, []int{unix.AF_INET6})
	for _, a := range live {
		if a.kernels && a.Prefix.Addr().IsLinkLocalUnicast() {
			addresses = append(addresses, a.Address)
		}
	}
	return addresses, err
}

// Swap gives the new interface the name, the addresses, the routes and everything else of the old one, as the old
// one has them by then. The old one gets a temporary name. switched says that the new interface has the name: even then,
// Swap may have failed to add something. If switched is false, the old interface has its name and its routes: the new one did not get
// the name, or does not go up, as when another interface on its parent has the MAC.
//
// Since Linux 6.2 an interface that is up can be renamed. Then both are up until SetOldDown, so the pod always has an
// interface: it sends by the new one, and still receives by the old one. Between Swap and SetOldDown, the caller
// announces to the neighbours. On older kernels, and for a port of a bridge or VRF, the old interface goes down first:
// two ports of one bridge on one wire would make a loop.
//
// The pod works on meanwhile. A route or an address that it adds or deletes is added or deleted on the new interface,
// whichever of the two the kernel gave it to or took it from.
func (r *Replacement) Swap() (switched bool, err error) {
	place := r.swapUp
	if !r.overlaps() {
		place = r.swapDown
	}
	err = place()
	device, lookErr := r.sandbox.Device(r.New)
	if lookErr != nil || device.Name != r.want.Link.Name || r.want.Link.Up && !device.Up {
		return false, errors.Join(err, r.revert())
	}
	if r.overlaps() {
		err = errors.Join(err, r.sandbox.carryRoutes(r.Old, r.New))
	}
	return true, errors.Join(err, r.carryAddresses())
}

// swapUp renames both interfaces while they are up. The new one has the routes before it has the name: who names the
// interface must find its routes. Of several IPv4 addresses all but the first, and the IPv4 routes, follow the name. All
// this is one datagram, so that a kill leaves nothing half done. Routes for which it has no room are carried over
// afterwards.
func (r *Replacement) swapUp() error {
	if _, err := r.sandbox.Device(r.New); err != nil {
		return err
	}
	if err := r.refresh(); err != nil {
		return err
	}
	early, late := r.splitAddresses()
	list, err := r.sandbox.routesToCarry(r.Old)
	if err != nil {
		return err
	}
	pending, err := r.sandbox.carry(r.Old, r.New, list)
	want := r.want
	want.Routes = nil
	before, after, takeoverErr := r.swapRequests(want, late)
	batch := append([]rtnl.Message{setUp(r.New, r.temporary)}, addAddresses(r.New, early, true)...)
	// Without the kernel's routes of its addresses, the old interface gets no route by a gateway any more.
	batch = append(batch, removeKernelRoutes(r.Old, r.want.Addresses)...)
	pending = pending[:min(len(pending), max(0, rtnl.MaxBatch-len(batch)-len(before))/2)]
	follows := func(c carriedRoute) bool { return len(late) > 0 && !c.route.Is6() }
	for _, named := range []bool{false, true} {
		if named {
			batch = append(batch, before...)
		}
		for i := range pending {
			if follows(pending[i]) == named {
				batch = pending[i].appendTo(batch)
			}
		}
	}
	outcomes, failed := r.sandbox.socket.RunAfter(rename(r.Old, r.retired, false), append(batch, after...)...)
	if failed != nil {
		return errors.Join(err, takeoverErr, failed)
	}
	removed, carryErr := r.sandbox.endCarry(r.New, pending, outcomes)
	r.removed, r.disturbed = removed, true
	return errors.Join(append(outcomes, err, takeoverErr, carryErr)...)
}

// splitAddresses divides the addresses into those that the new interface gets before it has the name, and those that follow: the
// renaming changes the labels of all IPv4 addresses but the first. The first does not follow. The pod could add another one
// before it, and with the first address of a network the kernel deletes the others.
func (r *Replacement) splitAddresses() (early, late []netstate.Address) {
	ipv4, ipv6 := byFamily(r.want.Addresses)
	first := min(len(ipv4), 1)
	if len(ipv4) > 1 && ipv4[0].Label != r.want.Link.Name { // It would lose its label.
		first = 0
	}
	return slices.Concat(ipv4[:first], ipv6), ipv4[first:]
}

// swapDown sets the old interface down before the new one goes up. The kernel then drops the routes of the old one, so
// they are taken off before.
func (r *Replacement) swapDown() error {
	if err := r.refresh(); err != nil {
		return err
	}
	removeErr := r.sandbox.socket.Run(removeKernelRoutes(r.Old, r.want.Addresses)...) // No route by a gateway comes any more.
	removed, err := r.sandbox.takeRoutes(r.Old, 0)
	r.removed, r.disturbed, r.want.Routes = removed, true, removed
	readErr := r.refresh() // To take the routes takes a while.
	early, late := r.splitAddresses()
	early, ipv6 := byFamily(early)
	late = append(slices.Clip(late), ipv6...) // While the interface is down, they would be of no use.
	before, after, takeoverErr := r.swapRequests(r.want, late)
	// The renaming of the new one fails as long as the old one has the name.
	batch := slices.Concat([]rtnl.Message{rename(r.Old, r.retired, false)}, addAddresses(r.New, early, true), before, after)
	outcomes, failed := r.sandbox.socket.RunAfter(setDown(r.Old, r.want.Link.Name), batch...)
	return errors.Join(append(outcomes, removeErr, err, readErr, takeoverErr, failed)...)
}

// refresh reads what the pod can have changed since the caller read the old interface: to make the new one takes long.
func (r *Replacement) refresh() error {
	before := r.want.Addresses
	addresses, err := r.sandbox.addresses(r.Old, bothFamilies)
	if err != nil {
		return err
	}
	for i, a := range addresses {
		position := slices.IndexFunc(before, a.SameAddress)
		addresses[i].WithoutRoute = position >= 0 && before[position].WithoutRoute
	}
	neighbours, err := r.sandbox.neighbours(r.Old)
	r.want.Addresses, r.want.Neighbours = addresses, neighbours
	return err
}

// SetOldDown sets the old interface down if it is up. That takes an RCU grace period. During it, the kernel drops packets
// that come in by the old interface.
func (r *Replacement) SetOldDown() error {
	if !r.overlaps() {
		return nil
	}
	return errors.Join(r.sandbox.carryRoutes(r.Old, r.New), r.sandbox.socket.Run(setDown(r.Old, r.retired)))
}

// overlaps says whether both interfaces are up at the same time for a moment.
func (r *Replacement) overlaps() bool {
	return renamesLive() && r.want.Master == nil && r.want.Link.Up
}

// renamesLive says whether the kernel renames a device that is up (since 6.2; "net/core: Allow live
// renaming when an interface is up").
// Tests try both ways.
var renamesLive = sync.OnceValue(func() bool { return kernelAtLeast(6, 2) && !failpoint.OlderKernel() })

// swapRequests returns the requests by which the new interface takes over, from its name on: those that its routes need
// before them, with the addresses that it does not have yet, and the others.
func (r *Replacement) swapRequests(want netstate.Interface, addresses []netstate.Address) (before, after []rtnl.Message, err error) {
	first := requests{batch: []rtnl.Message{rename(r.New, want.Link.Name, want.Link.Up && want.Master == nil)}}
	if want.Master != nil {
		first.addAll(r.sandbox.enslave(r.New, *want.Master))
		if want.Link.Up {
			first.add(setUp(r.New, want.Link.Name), nil)
		}
	}
	_, notify := divideSettings(r.New, want.Settings)
	want.Rules = nil // They name the interface, or none: the kernel keeps them.
	after, err = r.sandbox.afterUp(r.New, want, true)
	for i := range after {
		after[i].MayExist = true // The pod can have made it meanwhile.
	}
	return slices.Concat(first.batch, notify, addAddresses(r.New, addresses, true)), after, errors.Join(first.err, err)
}

// rename returns the request that renames the device of that index, and then sets it up if asked.
func rename(index int, name string, up bool) rtnl.Message {
	var flags uint32
	if up {
		flags = unix.IFF_UP
	}
	return linkMessage(unix.RTM_SETLINK, fmt.Sprintf("rename the device with index %d to %s", index, name), index, flags, flags, textAttr(unix.IFLA_IFNAME, name))
}

// revert gives the old interface its name back, and deletes the new one.
func (r *Replacement) revert() error {
	errs := []error{r.Discard()}
	if name, err := r.sandbox.NameOf(r.Old); err != nil || name != r.want.Link.Name {
		errs = append(errs, err, r.sandbox.socket.Run(rename(r.Old, r.want.Link.Name, false)))
	}
	if !r.disturbed {
		return errors.Join(errs...)
	}
	// Down and up gives it the kernel's routes of its addresses again. After them come those that were taken off, those that it still has
	// and loses by that, and what the kernel has dropped.
	rest, err := r.sandbox.takeRoutes(r.Old, 0)
	errs = append(errs, err)
	batch := []rtnl.Message{setDown(r.Old, r.want.Link.Name)}
	if r.want.Link.Up {
		batch = append(batch, setUp(r.Old, r.want.Link.Name))
	}
	errs = append(errs, r.sandbox.socket.Run(batch...), r.sandbox.AddAddresses(r.Old, r.want.Addresses))
	want := netstate.Interface{Neighbours: r.want.Neighbours, Routes: slices.Concat(r.removed, rest)}
	after, err := r.sandbox.afterUp(r.Old, want, true)
	return errors.Join(append(errs, err, r.sandbox.socket.Run(after...))...)
}

// Discard deletes the new interface. It is for one that has not taken the old one's place.
func (r *Replacement) Discard() error { return r.sandbox.deleteIndex(r.New, r.temporary) }

// deleteIndex deletes the device of that index. It is no error if it is gone.
func (n *Namespace) deleteIndex(index int, name string) error {
	m := deleteLink(index, name)
	m.MayLack = true
	return n.socket.Run(m)
}

// DeleteRetired deletes the replaced interface with that index. It leaves alone a device without a temporary name,
// because that was not replaced. If a kill has left the replaced interface up, the one called name gets its routes first.
// deleted says whether there was one.
func (n *Namespace) DeleteRetired(index int, name string) (deleted bool, err error) {
	device, err := n.Device(index)
	if errors.Is(err, ErrNoDevice) || err == nil && (!temporaryForm.MatchString(device.Name) || !isCreatable(device.Kind)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if device.Up {
		if successor, lookErr := n.Index(name); lookErr == nil {
			err = n.carryRoutes(index, successor)
		}
		err = errors.Join(err, n.socket.Run(setDown(index, device.Name)))
	}
	return true, errors.Join(err, n.deleteIndex(index, device.Name))
}

// RestoreName gives the interface with that index its name back, if a kill came before its Replacement had the name. If it lacks
// the kernel's routes of its addresses, RestoreName sets it down and up, which makes them anew. It leaves alone a device that has
// neither the name nor a temporary one.
func (n *Namespace) RestoreName(index int, name string, addresses []netstate.Address) error {
	device, err := n.Device(index)
	if errors.Is(err, ErrNoDevice) || err == nil && device.Name != name && !temporaryForm.MatchString(device.Name) {
		return nil
	}
	if err != nil {
		return err
	}
	if device.Name != name {
		if exists, err := n.Exists(name); err != nil || exists {
			return err
		}
		if err := n.socket.Run(rename(index, name, false)); err != nil {
			return err
		}
	}
	if !device.Up { // A restore sets it up.
		return nil
	}
	list, err := n.routes(routeQuery{index: index, families: bothFamilies})
	if err != nil {
		return err
	}
	marked := slices.Clone(addresses)
	markWithoutRoute(marked, list.kernels)
	lacks := false
	for i, a := range marked {
		lacks = lacks || a.WithoutRoute && !addresses[i].WithoutRoute
	}
	if !lacks {
		return nil
	}
	return n.socket.Run(append([]rtnl.Message{setDown(index, name), setUp(index, name)}, addAddresses(index, addresses, true)...)...)
}

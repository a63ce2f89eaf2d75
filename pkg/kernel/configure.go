package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ConfigureOptions are the options of Configure.
type ConfigureOptions struct {
	// Known says that all this was this interface's before. Its IPv6 addresses are usable
	// at once, without duplicate address detection. Its routes of one slot stand in the
	// order that they had; otherwise each new route stands before its equals, as with the
	// reference plugins. It is the caller who announces the addresses: the kernel would
	// broadcast on the interface, which costs each macvlan on the parent.
	Known bool
}

// Build makes the interface as it is described: Create and Configure in one. parentAt,
// parentIndex and the errors are those of Create.
func Build(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface, opts ConfigureOptions) (Built, error) {
	if parentAt != sandbox && createsInTarget() && isPlain(want, opts) {
		built, err := buildAtOnce(parentAt, sandbox, parentIndex, want, opts)
		if built.Index != 0 || !isTaken(err) {
			return built, err
		}
		// Its name or its index, which Create tells apart.
	}
	index, err := Create(parentAt, sandbox, parentIndex, want.Link)
	if err != nil {
		return Built{}, err
	}
	return Built{Index: index}, sandbox.Configure(index, want, opts)
}

// buildAtOnce makes the interface up, and sends the rest as soon as the kernel has made it. There
// is an interface if there is an index, whatever else failed.
func buildAtOnce(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface, opts ConfigureOptions) (built Built, err error) {
	index := want.Link.Index
	create, err := newLink(want.Link, parentIndex, index, want.Link.Name, unix.IFF_UP)
	if err != nil {
		return built, err
	}
	if err := linkElsewhere(create, parentAt, sandbox); err != nil {
		return built, err
	}
	after, err := sandbox.afterUp(index, want, opts.Known)
	_, late := settingsInOrder(want.Settings, opts)
	look := rtnl.Message{Request: getLink(index, ""), What: "read device " + want.Link.Name, Take: func(payload []byte) (err error) {
		built.link, err = parseLink(payload)
		return err
	}}
	// The setting before the addresses: what a kill leaves without it lacks those too, and is
	// remembered by no capture.
	rest := slices.Concat(announcing(index, late), addAddresses(index, want.Addresses, opts.Known), after, []rtnl.Message{look})
	failed, more := sandbox.socket.RunAfter(create, rest...)
	if failed != nil {
		return Built{}, failed
	}
	built.Index = index
	return built, errors.Join(more, err)
}

// HoldProcessor makes Build faster for a command that does nothing but build: the goroutine that
// sends the changes keeps its processor while the kernel makes an interface. With one processor
// it changes nothing. What takes long by itself, such as deleting or moving a device, holds nothing.
func HoldProcessor() { rtnl.HoldProcessor(runtime.GOMAXPROCS(0) > 1) }

// Built is what the kernel told of the link that Build made.
type Built struct {
	// Index is the link's, which is not the one that was asked for if that was taken.
	Index int
	// link spares the next Capture of the interface the question, if the kernel told all of
	// it. It is nil otherwise.
	link *link
}

// isPlain says that the interface can be made up at once: nothing is to be done to it
// before it goes up.
func isPlain(want netstate.Interface, opts ConfigureOptions) bool {
	early, _ := settingsInOrder(want.Settings, opts)
	return want.Link.Index != 0 && want.Link.Up && len(early) == 0 && want.Master == nil &&
		want.Link.LinkFlags == netstate.LinkFlags{} && want.Link.Alias == "" && !passthru(want.Link)
}

// settingsInOrder returns the settings for before the interface goes up, and for after: what has
// the kernel announce addresses, where it is not to.
func settingsInOrder(settings map[string]string, opts ConfigureOptions) (early, late map[string]string) {
	value, ok := settings[arpNotify]
	if _, err := strconv.Atoi(value); !opts.Known || !ok || err != nil {
		return settings, nil
	}
	early = maps.Clone(settings)
	delete(early, arpNotify)
	return early, map[string]string{arpNotify: value}
}

// Configure gives the freshly created interface of that index its settings, its
// master and its addresses, sets it up, and gives it its routes and what else stands
// beside it. It goes on after what fails, and returns all errors.
func (n *Namespace) Configure(index int, want netstate.Interface, opts ConfigureOptions) error {
	early, late := settingsInOrder(want.Settings, opts)
	failed := []error{n.writeSettings(want.Link.Name, early)}
	batch, err := n.beforeUp(index, want)
	failed = append(failed, err)
	addresses := addAddresses(index, want.Addresses, opts.Known)
	if !opts.Known {
		// So that the kernel announces them when the interface goes up, if it is told to.
		batch, addresses = append(batch, addresses...), nil
	}
	if want.Link.Up {
		up, err := setUpAs(index, want.Link)
		if err == nil {
			batch = append(batch, up)
		}
		failed = append(failed, err)
	}
	batch = slices.Concat(batch, announcing(index, late), addresses)
	after, err := n.afterUp(index, want, opts.Known)
	failed, batch = append(failed, err), append(batch, after...)
	return errors.Join(append(failed, n.socket.Run(batch...))...)
}

// beforeUp returns the requests that are right before the interface is up. What can't
// be asked for is left out, and an error.
func (n *Namespace) beforeUp(index int, want netstate.Interface) (batch []rtnl.Message, err error) {
	var errs []error
	if hasAttributes(want.Link) {
		m, err := setAttributes(index, want.Link)
		if err == nil {
			batch = append(batch, m)
		}
		errs = append(errs, err)
	}
	if want.Master != nil {
		enslave, err := n.enslave(index, *want.Master)
		errs, batch = append(errs, err), append(batch, enslave...)
	}
	return batch, errors.Join(errs...)
}

// afterUp returns the requests that need the interface to be up. What can't be asked
// for is left out, and an error.
func (n *Namespace) afterUp(index int, want netstate.Interface, known bool) (batch []rtnl.Message, err error) {
	var errs []error
	for _, neighbour := range want.Neighbours {
		m, err := addNeighbour(index, neighbour)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		batch = append(batch, m)
	}
	batch = append(batch, removeRoutes(index, want.Addresses)...)
	routes, err := n.addRoutes(index, want.Routes, want.RouteOrder, known)
	errs, batch = append(errs, err), append(batch, routes...)
	for _, r := range want.Rules {
		batch = append(batch, addRule(r))
	}
	for _, q := range want.Qdiscs {
		qdisc, err := n.addQdisc(index, q)
		errs, batch = append(errs, err), append(batch, qdisc...)
	}
	return batch, errors.Join(errs...)
}

func passthru(link netstate.Link) bool {
	return link.Macvlan != nil && link.Macvlan.Mode == "passthru"
}

// setUpAs returns the request that sets the link up. A passthru macvlan took the MAC of its
// parent when it was made, whatever it was asked for (macvlan_common_newlink), so that it is
// given its own here.
func setUpAs(index int, link netstate.Link) (rtnl.Message, error) {
	up := setUp(index, link.Name)
	if !passthru(link) || link.MAC == "" {
		return up, nil
	}
	attr, err := macAttr(link.MAC)
	if err != nil {
		return rtnl.Message{}, err
	}
	up.Request.AddData(attr)
	return up, nil
}

// Delete deletes the device of that name, or returns ErrNoDevice.
func (n *Namespace) Delete(ifName string) error {
	link, err := n.link(ifName)
	if err != nil {
		return err
	}
	err = n.socket.Run(deleteLink(link.index, ifName))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", ifName, ErrNoDevice)
	}
	return err
}

// EnableIPv6 turns IPv6 on for the device, if the kernel has IPv6 at all.
func (n *Namespace) EnableIPv6(ifName string) error {
	err := n.writeSettings(ifName, map[string]string{"ipv6/disable_ipv6": "0"})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

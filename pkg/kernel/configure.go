package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Build makes the interface as it was before. It is Create and Configure with rebuild in one. parentAt,
// parentIndex and the errors are those of Create.
func Build(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface) (Built, error) {
	if parentAt != sandbox && createsInTarget() && isPlain(want) {
		built, err := buildAtOnce(parentAt, sandbox, parentIndex, want)
		if built.Index != 0 || !isTaken(err) {
			return built, err
		}
		// The name or the index is taken. Create finds out which.
	}
	index, err := Create(parentAt, sandbox, parentIndex, want.Link)
	if err != nil {
		return Built{}, err
	}
	return Built{Index: index}, sandbox.Configure(index, want, true)
}

// buildAtOnce makes the interface up at once, and sends the rest as soon as the kernel has made it.
// If Built has an index, the interface is there, whatever else failed.
func buildAtOnce(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface) (built Built, err error) {
	index := want.Link.Index
	create := newLink(want.Link, parentIndex, index, want.Link.Name, unix.IFF_UP)
	if err := addParentNSID(create, parentAt, sandbox); err != nil {
		return built, err
	}
	after, err := sandbox.afterUp(index, want, true)
	_, notify := divideSettings(index, want.Settings)
	look := getLink("read device "+want.Link.Name, index, "")
	look.Take = func(payload []byte) (err error) {
		built.link, err = parseLink(payload)
		return err
	}
	// The setting goes before the addresses. If a kill leaves an interface without the setting, it
	// has no address either, and no capture remembers it.
	rest := slices.Concat(notify, addAddresses(index, want.Addresses, true), after, []rtnl.Message{look})
	outcomes, failed := sandbox.socket.RunAfter(create, rest...)
	if failed != nil {
		return Built{}, failed
	}
	built.Index = index
	return built, errors.Join(append(outcomes, err)...)
}

// Built is what Build has made.
type Built struct {
	// Index is the index of the interface. It is another one than was asked for if that was taken.
	Index int
	// link is what the kernel told of the interface, if it told all. The next Capture then need not
	// ask. Otherwise it is nil.
	link *link
}

// isPlain says that the interface can be made up at once, because nothing has to be done to it
// while it is down.
func isPlain(want netstate.Interface) bool {
	files, _ := divideSettings(0, want.Settings)
	return want.Link.Index != 0 && want.Link.Up && len(files) == 0 && want.Master == nil &&
		want.Link.LinkFlags == netstate.LinkFlags{} && want.Link.Alias == "" && !isPassthru(want.Link)
}

// Configure gives the interface of that index its settings, its master and its addresses, sets
// it up, and adds its routes, rules, neighbours and qdiscs. It goes on after a failure, and returns
// all errors.
//
// rebuild says that the interface had all this before. Its IPv6 addresses are then usable at
// once, without duplicate address detection. Its routes of one slot stand in the order that
// they had. Without rebuild, each new route stands before its equals, as with the reference
// plugins. The kernel announces no address of a rebuilt interface: it would broadcast on the
// interface, which costs time for each macvlan on the parent. The caller announces the
// addresses instead.
func (n *Namespace) Configure(index int, want netstate.Interface, rebuild bool) error {
	files, notify := divideSettings(index, want.Settings)
	r := requests{err: n.writeSettings(want.Link.Name, files)}
	if hasAttributes(want.Link) {
		r.add(setAttributes(index, want.Link), nil)
	}
	if want.Master != nil {
		r.addAll(n.enslave(index, *want.Master))
	}
	addresses := slices.Concat(notify, addAddresses(index, want.Addresses, rebuild))
	if !rebuild {
		// The kernel announces them when the interface goes up, if the setting tells it to.
		r.addAll(addresses, nil)
		addresses = nil
	}
	if want.Link.Up {
		r.add(setUpAs(index, want.Link), nil)
	}
	r.addAll(addresses, nil)
	r.addAll(n.afterUp(index, want, rebuild))
	return r.runOn(n)
}

// afterUp returns the requests that need the interface to be up. A request that cannot be made is
// left out, and its error is returned.
func (n *Namespace) afterUp(index int, want netstate.Interface, rebuild bool) ([]rtnl.Message, error) {
	r := requests{batch: removeRoutes(index, want.Addresses)}
	for _, neighbour := range want.Neighbours {
		r.add(addNeighbour(index, neighbour), nil)
	}
	r.addAll(n.addRoutes(index, want.Routes, rebuild))
	for _, rule := range want.Rules {
		r.add(addRule(rule), nil)
	}
	for _, q := range want.Qdiscs {
		r.addAll(n.addQdisc(index, q))
	}
	return r.batch, r.err
}

func isPassthru(link netstate.Link) bool {
	return link.Macvlan != nil && link.Macvlan.Mode == "passthru"
}

// setUpAs returns the request that sets the link up. A new passthru macvlan has the MAC of its
// parent, whatever was asked for (macvlan_common_newlink). This request gives it its own.
func setUpAs(index int, link netstate.Link) rtnl.Message {
	up := setUp(index, link.Name)
	if isPassthru(link) && link.MAC != "" {
		up.Add(macAttr(link.MAC))
	}
	return up
}

// Delete deletes the device of that name, or returns ErrNoDevice.
func (n *Namespace) Delete(ifName string) error {
	m := deleteLink(0, ifName)
	m.Add(textAttr(unix.IFLA_IFNAME, ifName))
	err := n.socket.Run(m)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", ifName, ErrNoDevice)
	}
	return err
}

// deletionGroup is the group of devices that are deleted at once. Nobody else chooses it: it is "relk".
const deletionGroup = 0x72656c6b

// DeleteTogether deletes the devices of these names. The kernel takes as long for all of a group as for one of them
// (rtnl_group_dellink). It is no error if some are gone.
func (n *Namespace) DeleteTogether(names ...string) error {
	var batch []rtnl.Message
	for _, name := range names {
		batch = append(batch, setLink("delete "+name, 0, textAttr(unix.IFLA_IFNAME, name), uint32Attr(unix.IFLA_GROUP, deletionGroup)))
	}
	batch = append(batch, linkMessage(unix.RTM_DELLINK, "delete "+strings.Join(names, " and "), 0, 0, 0, uint32Attr(unix.IFLA_GROUP, deletionGroup)))
	for i := range batch {
		batch[i].MayLack = true
	}
	return n.socket.Run(batch...)
}

// EnableIPv6 turns IPv6 on for the device, if the kernel has IPv6 at all.
func (n *Namespace) EnableIPv6(ifName string) error {
	err := n.writeSettings(ifName, map[string]string{"ipv6/disable_ipv6": "0"})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

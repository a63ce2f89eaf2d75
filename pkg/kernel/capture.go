package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ErrUnsupported says that relink cannot describe an interface: its kind, or what it is stacked on.
var ErrUnsupported = errors.New("not supported")

// Extent says what Capture reads besides the link, its parents, its master, its addresses and its
// routes.
type Extent struct {
	// ChangedSettings reads all settings that differ from the namespace's defaults. Settings are the keys of
	// others to read.
	ChangedSettings bool
	Settings        []string
	Rules           bool
	// Neighbours and Qdiscs read what somebody made, not what the kernel made.
	Neighbours, Qdiscs bool
	// OtherRoutes reads the routes of other devices, too: those whose source is one of the interface's addresses belong to
	// the interface, and they tell which of its routes stands first in its slot.
	OtherRoutes bool
	// ForCheckpoint leaves out what a checkpoint does not keep: what is too much, or lasts for a time
	// only.
	ForCheckpoint bool
	// ParentsCarried reads what somebody gave the parents in the host.
	ParentsCarried bool
	// NoIPv6 leaves out the IPv6 addresses and routes.
	NoIPv6 bool
	// Built is what Build has just returned for this interface. It can save a question to the
	// kernel.
	Built Built
}

// CheckpointExtent is the extent of a checkpoint.
var CheckpointExtent = Extent{ChangedSettings: true, Rules: true, Neighbours: true, Qdiscs: true, OtherRoutes: true, ForCheckpoint: true, ParentsCarried: true}

// NewInterfaceExtent is the extent of a checkpoint of an interface that was just made. The caller knows the
// rest: it has set it.
var NewInterfaceExtent = Extent{OtherRoutes: true, ForCheckpoint: true, ParentsCarried: true}

// ExtentOf returns the extent that a comparison with the recorded interface needs.
func ExtentOf(i netstate.Interface) Extent {
	e := Extent{Rules: len(i.Rules) > 0, Neighbours: len(i.Neighbours) > 0, Qdiscs: len(i.Qdiscs) > 0}
	e.OtherRoutes = slices.ContainsFunc(i.Routes, func(r netstate.Route) bool { return r.Device != "" })
	for key := range i.Settings {
		e.Settings = append(e.Settings, key)
	}
	e.NoIPv6 = !slices.ContainsFunc(i.Addresses, netstate.Address.Is6) && !slices.ContainsFunc(i.Routes, netstate.Route.Is6)
	return e
}

// families are the address families to read.
func (e Extent) families() []int {
	if e.NoIPv6 {
		return []int{unix.AF_INET}
	}
	return bothFamilies
}

var bothFamilies = []int{unix.AF_INET, unix.AF_INET6}

// Capture reads the interface ifName of sandbox, and what it is stacked on. devices are those of
// host, which the caller has read before. Without them, Capture reads those that the interface is stacked on. What Capture returns is whole: it reads a list again that
// changed meanwhile. It returns ErrNoDevice if the interface is not there, and ErrUnsupported if it
// cannot be described.
func Capture(host, sandbox *Namespace, devices netstate.Devices, ifName string, extent Extent) (netstate.Interface, error) {
	link := extent.Built.link
	if link == nil {
		var err error
		if link, err = sandbox.existingLink(ifName); err != nil {
			return netstate.Interface{}, err
		}
	}
	c := &capture{host: host, sandbox: sandbox, devices: devices, link: link, extent: extent}
	var err error
	if c.captured.Link, err = sandbox.describe(link); err != nil {
		return c.captured, err
	}
	c.captured.Carrier = c.link.carrierInSandbox()
	if err := c.parents(); err != nil {
		return c.captured, fmt.Errorf("parents of %s: %w", ifName, err)
	}
	err = c.readCarried()
	if errors.Is(err, unix.ENODEV) {
		return c.captured, fmt.Errorf("%s: %w: it went while it was read", ifName, ErrNoDevice)
	}
	if err != nil {
		return c.captured, fmt.Errorf("%s: %w", ifName, err)
	}
	return c.captured, nil
}

// capture is the state of one call of Capture.
type capture struct {
	host, sandbox *Namespace
	devices       netstate.Devices
	link          *link
	extent        Extent
	captured      netstate.Interface
}

func (c *capture) note(notes ...string) {
	c.captured.NotCaptured = append(c.captured.NotCaptured, notes...)
}

// invalidName returns which of the names cannot stand in a checkpoint, and why, or an empty string.
// Empty names are passed over. A pod can call its devices as it likes.
func invalidName(names ...string) string {
	for _, name := range names {
		if err := attachment.ValidateIfName(name); name != "" && err != nil {
			return fmt.Sprintf("device %q, whose name %s", name, err)
		}
	}
	return ""
}

// quoted returns the name, in quotes if it cannot be printed as it is.
func quoted(name string) string {
	if invalidName(name) != "" {
		return strconv.Quote(name)
	}
	return name
}

// limit returns as much of the list as a checkpoint keeps, and notes how many are left out.
func limit[T any](c *capture, list []T, label string) []T {
	if surplus := len(list) - maxKept; surplus > 0 && c.extent.ForCheckpoint {
		c.note(fmt.Sprintf("%s beyond the %d that are kept of an interface: %d", label, maxKept, surplus))
		return list[:maxKept]
	}
	return list
}

// parents reads the chain of devices below the link. A NIC has none.
func (c *capture) parents() (err error) {
	if c.captured.Link.Kind == netstate.KindNIC {
		return nil
	}
	if c.link.parentNSID < 0 {
		devices, err := c.sandbox.AddStack(nil, c.link.parentIndex())
		if err != nil {
			return err
		}
		c.captured.ParentsInSandbox = true
		c.captured.Parents, err = devices.Chain(c.link.parentIndex())
		return err
	}
	hostID, err := c.sandbox.nsid(c.host)
	if err != nil {
		return err
	}
	if hostID != c.link.parentNSID {
		return fmt.Errorf("they are neither in the sandbox nor in the host: %w", ErrUnsupported)
	}
	if c.devices == nil {
		if c.devices, err = c.host.AddStack(nil, c.link.parentIndex()); err != nil {
			return err
		}
	}
	if c.captured.Parents, err = c.devices.Chain(c.link.parentIndex()); err != nil || !c.extent.ParentsCarried {
		return err
	}
	return c.parentsCarried()
}

// readCarried reads everything of the interface but the link and its parents.
func (c *capture) readCarried() error {
	table, err := c.master()
	if err != nil {
		return err
	}
	addresses, err := c.sandbox.addresses(c.link.Index, c.extent.families())
	if err != nil {
		return err
	}
	ipv4, ipv6 := byFamily(addresses)
	ipv6 = inListOrder(limit(c, inListOrder(ipv6), "IPv6 addresses")) // The oldest stay.
	c.captured.Addresses = slices.Concat(limit(c, ipv4, "IPv4 addresses"), ipv6)
	pending, err := c.sandbox.pendingRoutes(c.link.Index, addresses)
	if err != nil {
		return err
	}
	routes, err := c.sandbox.routes(routeQuery{
		index: c.link.Index, families: c.extent.families(), table: table, beside: c.extent.OtherRoutes, addresses: addresses, toKeep: c.extent.ForCheckpoint,
	})
	if err != nil {
		return err
	}
	c.note(routes.notes...)
	netstate.MarkOnLink(routes.routes, addresses, routes.kernels)
	c.captured.Routes = routes.routes
	if c.link.carrier() {
		markWithoutRoute(c.captured.Addresses, append(pending, routes.kernels...))
	}
	if c.link.xdp != 0 {
		c.note("its XDP program")
	}
	if names := c.link.altNames; len(names) > 0 && c.captured.Link.Kind != netstate.KindNIC { // To a NIC, udev gives them again.
		c.note(fmt.Sprintf("its alternative names: %d, such as %q", len(names), names[0]))
	}
	for _, read := range []func() error{c.settings, c.rules, c.neighbours, c.qdiscs} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// markWithoutRoute marks the addresses for whose prefix the kernel has no route any more. kernels
// are the prefixes of the kernel's routes.
func markWithoutRoute(addresses []netstate.Address, kernels []netip.Prefix) {
	present := make(map[netip.Prefix]bool, len(kernels))
	for _, k := range kernels {
		present[k] = true
	}
	for i := range addresses {
		if a := &addresses[i]; !present[a.Network()] && a.Flags&unix.IFA_F_NOPREFIXROUTE == 0 {
			a.WithoutRoute = true
		}
	}
}

func (c *capture) settings() (err error) {
	if len(c.extent.Settings) > 0 {
		c.captured.Settings, err = c.sandbox.settings(c.link, c.extent.Settings)
	}
	if err != nil || !c.extent.ChangedSettings {
		return err
	}
	changed, notes, err := c.sandbox.changedSettings(c.link)
	c.note(notes...)
	if c.captured.Settings == nil {
		c.captured.Settings = changed
	}
	maps.Copy(c.captured.Settings, changed)
	return err
}

func (c *capture) rules() error {
	if !c.extent.Rules {
		return nil
	}
	rules, notes, err := c.sandbox.Rules()
	c.captured.Rules = limit(c, netstate.Concerning(c.captured, rules), "rules")
	c.note(notes...)
	return err
}

func (c *capture) neighbours() (err error) {
	if c.extent.Neighbours {
		var neighbours []netstate.Neighbour
		neighbours, err = c.sandbox.neighbours(c.link.Index)
		c.captured.Neighbours = limit(c, neighbours, "neighbours")
	}
	return err
}

func (c *capture) qdiscs() error {
	if !c.extent.Qdiscs {
		return nil
	}
	qdiscs, notes, err := c.sandbox.qdiscs(c.link.Index)
	c.captured.Qdiscs = qdiscs
	c.note(notes...)
	return err
}

// ensureNSID returns the number by which n knows peer. If n has no number for it yet, the kernel
// assigns one.
func (n *Namespace) ensureNSID(peer *Namespace) (int, error) {
	id, err := n.nsid(peer)
	if err != nil || id >= 0 {
		return id, err
	}
	create := newMessage(unix.RTM_NEWNSID, 0, "assign namespace ID", nl.NewRtGenMsg(), uint32Attr(unix.NETNSA_FD, peer.fd), uint32Attr(unix.NETNSA_NSID, -1))
	create.MayExist = true
	if err := n.socket.Run(create); err != nil {
		return -1, err
	}
	if id, err = n.nsid(peer); err == nil && id < 0 {
		err = errors.New("the kernel gives it no number (RTM_NEWNSID)")
	}
	return id, err
}

// peerNumber is the number by which a namespace knows another.
type peerNumber struct {
	peer   *Namespace
	number int
}

// nsid returns the number by which n knows peer (ip-netns(8), "nsid"), or -1 if n has no number
// for it.
func (n *Namespace) nsid(peer *Namespace) (number int, err error) {
	if last := n.lastPeer.Load(); last != nil && last.peer == peer {
		return last.number, nil
	}
	get := newMessage(unix.RTM_GETNSID, 0, "read namespace ID", nl.NewRtGenMsg(), uint32Attr(unix.NETNSA_FD, peer.fd))
	err = n.socket.Get(get, func(payload []byte) (err error) {
		number, err = parseNSID(payload)
		return err
	})
	if err == nil && number >= 0 {
		n.lastPeer.Store(&peerNumber{peer, number})
	}
	return number, err
}

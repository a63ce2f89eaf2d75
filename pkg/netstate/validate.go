package netstate

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Bounds of the numbers that a user can give.
const (
	MinVLANID = 1
	MaxVLANID = 4094
	// MinMTU is the kernel's minimum for Ethernet (ETH_MIN_MTU).
	MinMTU = 68
)

// MacvlanModes are the modes that an interface can be built in.
var MacvlanModes = []string{"bridge", "private", "vepa", "passthru"}

// Validate reports the first thing in v that no kernel accepts.
func (v VLAN) Validate() error {
	if v.ID < MinVLANID || v.ID > MaxVLANID {
		return fmt.Errorf("VLAN ID %d is not between %d and %d", v.ID, MinVLANID, MaxVLANID)
	}
	if v.Protocol != Protocol8021Q && v.Protocol != Protocol8021AD {
		return fmt.Errorf("VLAN protocol %q is neither %s nor %s", v.Protocol, Protocol8021Q, Protocol8021AD)
	}
	return nil
}

// settingKey matches the keys of Interface.Settings, which become names of files.
var settingKey = regexp.MustCompile(`^ipv[46]/(neigh/)?[a-z0-9_]+$`)

// validateNames checks the names of devices that are given.
func validateNames(names ...string) error {
	for _, name := range names {
		if err := attachment.ValidateIfName(name); name != "" && err != nil {
			return fmt.Errorf("device %w", err)
		}
	}
	return nil
}

// validateAll returns the first error of the list.
func validateAll[T interface{ Validate() error }](list []T) error {
	for _, entry := range list {
		if err := entry.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// wrap puts before err what it is about.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// oneOf says that the value is none of the list.
func oneOf(list []string, label, value string) error {
	if !slices.Contains(list, value) {
		return fmt.Errorf("unknown %s %q", label, value)
	}
	return nil
}

// Validate reports the first thing in i that cannot be built as it is described.
func (i Interface) Validate() error {
	if err := cmp.Or(wrap(i.Link.Validate(), "link %q", i.Link.Name), i.validateParents()); err != nil {
		return err
	}
	if i.Master != nil {
		if err := i.Master.Validate(); err != nil {
			return wrap(err, "master %q", i.Master.Name)
		}
	}
	for key, value := range i.Settings {
		if !settingKey.MatchString(key) {
			return fmt.Errorf("setting %q is none of an interface", key)
		}
		if strings.ContainsAny(value, "\x00\n") {
			return fmt.Errorf("setting %s: %q is no value", key, value)
		}
	}
	return cmp.Or(validateAll(i.Addresses), validateAll(i.Routes), validateAll(i.Rules), validateAll(i.Neighbours), validateAll(i.Qdiscs))
}

func (i Interface) validateParents() error {
	switch isNIC := i.Link.Kind == KindNIC; {
	case isNIC && len(i.Parents) > 0:
		return fmt.Errorf("link %q: a NIC with parents", i.Link.Name)
	case !isNIC && len(i.Parents) == 0:
		return fmt.Errorf("link %q: no parents", i.Link.Name)
	}
	for n, p := range i.Parents {
		if err := p.Validate(); err != nil {
			return wrap(err, "parent %q", p.Name)
		}
		if isBase := n == len(i.Parents)-1; isBase == (p.Kind == KindVLAN) && !i.ParentsInSandbox {
			return fmt.Errorf("parent %q: a %s at place %d of %d: VLANs are stacked on one base", p.Name, p.Kind, n+1, len(i.Parents))
		}
	}
	return nil
}

// Validate reports the first thing in n that no kernel accepts.
func (n Neighbour) Validate() error {
	if !n.Address.IsValid() {
		return errors.New("a neighbour without address")
	}
	return wrap(validateMAC(n.MAC), "neighbour %s", n.Address)
}

// Validate reports the first thing in q that cannot be made.
func (q Qdisc) Validate() error {
	if err := oneOf(QdiscKinds, "qdisc", q.Kind); err != nil {
		return err
	}
	for _, f := range q.Filters {
		if err := oneOf(filterKinds, "filter", f.Kind); err != nil {
			return wrap(err, "qdisc %s", q)
		}
		for _, r := range f.Redirects {
			if err := attachment.ValidateIfName(r.Device); err != nil {
				return wrap(err, "qdisc %s: redirect to %q", q, r.Device)
			}
		}
	}
	return nil
}

// Validate reports the first thing in l that no kernel accepts.
func (l Link) Validate() error {
	if err := cmp.Or(attachment.ValidateIfName(l.Name), validateMAC(l.MAC)); err != nil {
		return err
	}
	macvlan, vlan, ipvlan := l.Kind == KindMacvlan || l.Kind == KindMacvtap, l.Kind == KindVLAN, l.Kind == KindIPvlan
	if macvlan != (l.Macvlan != nil) || vlan != (l.VLAN != nil) || ipvlan != (l.IPvlan != nil) ||
		(l.Kind == KindNIC) != (l.NIC != nil) || !vlan && l.VLANOptions != nil {
		return fmt.Errorf("kind %q does not go with its attributes", l.Kind)
	}
	switch {
	case macvlan:
		return l.Macvlan.Validate()
	case ipvlan:
		return l.IPvlan.Validate()
	case vlan:
		return errors.Join(l.VLAN.Validate(), l.VLANOptions.Validate())
	case l.Kind == KindNIC:
		if !l.NIC.Identified() {
			return errors.New("a NIC without permanent MAC and without bus address")
		}
		return nil
	}
	return fmt.Errorf("unknown kind %q", l.Kind)
}

// Validate reports the first thing in m that no kernel accepts.
func (m Macvlan) Validate() error {
	if err := oneOf(MacvlanModes, "macvlan mode", m.Mode); err != nil && m.Mode != "source" {
		return err
	}
	for _, mac := range m.Sources {
		if _, err := ParseMAC(mac); err != nil {
			return wrap(err, "source")
		}
	}
	return nil
}

// Modes and flags of IPvlan.
var (
	IPvlanModes = []string{"l2", "l3", "l3s"}
	IPvlanFlags = []string{"bridge", "private", "vepa"}
)

// Validate reports the first thing in v that no kernel accepts.
func (v IPvlan) Validate() error {
	return cmp.Or(oneOf(IPvlanModes, "ipvlan mode", v.Mode), oneOf(IPvlanFlags, "ipvlan flag", v.Flag))
}

// Validate reports the first thing in v that no kernel accepts. Nil is no options.
func (v *VLANOptions) Validate() error {
	if v == nil {
		return nil
	}
	for _, f := range v.Flags {
		if err := oneOf(VLANFlags, "VLAN flag", f); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports the first thing in m that cannot be a master.
func (m Master) Validate() error {
	return cmp.Or(oneOf([]string{KindBridge, KindVRF}, "kind", m.Kind), attachment.ValidateIfName(m.Name))
}

// Validate reports the first thing in a that no kernel accepts.
func (a Address) Validate() error {
	if !a.Prefix.IsValid() {
		return errors.New("an address without prefix")
	}
	return nil
}

// Validate reports the first thing in r that no kernel accepts.
func (r Route) Validate() error {
	if !r.Destination.IsValid() {
		return errors.New("a route without destination")
	}
	if err := validateNames(r.Devices()...); err != nil {
		return wrap(err, "route %s", r)
	}
	for name := range r.Metrics {
		if err := oneOf(RouteMetrics, "metric", name); err != nil {
			return wrap(err, "route %s", r)
		}
	}
	return nil
}

// Validate reports the first thing in r that no kernel accepts.
func (r Rule) Validate() error {
	if err := validateNames(r.InputDevice, r.OutputDevice); err != nil {
		return wrap(err, "rule %s", r)
	}
	return wrap(r.Selectors.validate(RuleSelectors, "selector"), "rule %s", r)
}

// Validate reports the first thing in d that cannot be a device.
func (d Device) Validate() error {
	if err := attachment.ValidateIfName(d.Name); err != nil {
		return err
	}
	if d.Kind == "" {
		return errors.New("no kind")
	}
	if (d.Kind == KindVLAN) != (d.VLAN != nil) || (d.Kind == KindBond) != (d.Bond != nil) {
		return fmt.Errorf("kind %q does not go with its attributes", d.Kind)
	}
	if err := d.Carried.Validate(); err != nil {
		return err
	}
	if d.VLAN != nil {
		return errors.Join(d.VLAN.Validate(), d.VLANOptions.Validate())
	}
	if d.Bond != nil {
		if err := d.Bond.Options.validate(BondOptions, "bond option"); err != nil {
			return err
		}
		for _, m := range d.Bond.Members {
			if err := attachment.ValidateIfName(m.Name); err != nil {
				return wrap(err, "member %q", m.Name)
			}
		}
	}
	return nil
}

// Validate reports the first thing in c that no kernel would take. Nil is nothing.
func (c *Carried) Validate() error {
	if c == nil {
		return nil
	}
	return cmp.Or(validateAll(c.Addresses), validateAll(c.Routes))
}

// ParseMAC returns s in the form of Link.MAC. It is an error if s is not the address of an Ethernet device: 6
// bytes, unicast, not zero.
func ParseMAC(s string) (string, error) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return "", fmt.Errorf("%q is not a MAC address: 6 bytes in the form 02:00:00:00:00:01 are needed", s)
	}
	if mac[0]&1 != 0 {
		return "", fmt.Errorf("%q is a multicast address", s)
	}
	if slices.Equal(mac, make(net.HardwareAddr, 6)) {
		return "", fmt.Errorf("%q is the zero address", s)
	}
	return mac.String(), nil
}

func validateMAC(mac string) error {
	if mac == "" {
		return nil
	}
	canonical, err := ParseMAC(mac)
	if err == nil && canonical != mac {
		return fmt.Errorf("MAC address %q is not written as %s", mac, canonical)
	}
	return err
}

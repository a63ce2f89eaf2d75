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

// Validate reports the first thing in i that relink must not work with: a name that is none, or a part that is missing. The kernel
// refuses words and numbers that it does not know.
func (i Interface) Validate() error {
	if err := cmp.Or(wrap(i.Link.Validate(), "link %q", i.Link.Name), i.validateParents()); err != nil {
		return err
	}
	if i.Master != nil {
		if err := attachment.ValidateIfName(i.Master.Name); err != nil {
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
	return cmp.Or(validateAll(i.Addresses), validateAll(i.Routes), validateAll(i.Rules), validateAll(i.Neighbours))
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

// Validate reports the first thing in l that no kernel accepts.
func (l Link) Validate() error {
	if err := cmp.Or(attachment.ValidateIfName(l.Name), validateMAC(l.MAC)); err != nil {
		return err
	}
	macvlan, vlan, ipvlan, nic := l.Kind == KindMacvlan || l.Kind == KindMacvtap, l.Kind == KindVLAN, l.Kind == KindIPvlan, l.Kind == KindNIC
	if macvlan != (l.Macvlan != nil) || vlan != (l.VLAN != nil) || ipvlan != (l.IPvlan != nil) ||
		nic != (l.NIC != nil) || !vlan && l.VLANOptions != nil {
		return fmt.Errorf("kind %q does not go with its attributes", l.Kind)
	}
	switch {
	case vlan:
		return l.VLAN.Validate()
	case nic && !l.NIC.Identified():
		return errors.New("a NIC without permanent MAC and without bus address")
	case !macvlan && !ipvlan && !nic:
		return fmt.Errorf("unknown kind %q", l.Kind)
	}
	return nil
}

// Modes and flags of IPvlan.
var (
	IPvlanModes = []string{"l2", "l3", "l3s"}
	IPvlanFlags = []string{"bridge", "private", "vepa"}
)

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
	return wrap(validateNames(r.Devices()...), "route %s", r)
}

// Validate reports the first thing in r that no kernel accepts.
func (r Rule) Validate() error {
	return wrap(validateNames(r.InputDevice, r.OutputDevice), "rule %s", r)
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
		return d.VLAN.Validate()
	}
	if d.Bond != nil {
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

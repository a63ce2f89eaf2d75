package netstate

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Bounds of the numbers that a user can give.
const (
	MinVLANID = 1
	MaxVLANID = 4094
	// MinMTU is the kernel's for Ethernet (ETH_MIN_MTU).
	MinMTU = 68
)

// MacvlanModes are the modes that an interface can be built in.
var MacvlanModes = []string{"bridge", "private", "vepa", "passthru"}

// Validate reports the first thing in v that no kernel would take.
func (v VLAN) Validate() error {
	if v.ID < MinVLANID || v.ID > MaxVLANID {
		return fmt.Errorf("VLAN ID %d is not between %d and %d", v.ID, MinVLANID, MaxVLANID)
	}
	if v.Protocol != Protocol8021Q && v.Protocol != Protocol8021AD {
		return fmt.Errorf("VLAN protocol %q is neither %s nor %s", v.Protocol, Protocol8021Q, Protocol8021AD)
	}
	return nil
}

// settingKey is the form of the keys of Interface.Settings.
var settingKey = regexp.MustCompile(`^ipv[46]/[a-z0-9_]+$`)

// Validate reports the first thing that keeps i from being built as it is
// described.
func (i Interface) Validate() error {
	if err := i.Link.Validate(); err != nil {
		return fmt.Errorf("link %q: %w", i.Link.Name, err)
	}
	if len(i.Parents) == 0 {
		return fmt.Errorf("link %q: no parents", i.Link.Name)
	}
	for n, p := range i.Parents {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("parent %q: %w", p.Name, err)
		}
		if isBase := n == len(i.Parents)-1; isBase == (p.Kind == KindVLAN) && !i.ParentsInSandbox {
			return fmt.Errorf("parent %q: a %s at place %d of %d: VLANs are stacked on one base", p.Name, p.Kind, n+1, len(i.Parents))
		}
	}
	for key := range i.Settings {
		if !settingKey.MatchString(key) {
			return fmt.Errorf("setting %q is none of an interface", key)
		}
	}
	for _, a := range i.Addresses {
		if !a.Prefix.IsValid() {
			return errors.New("an address without prefix")
		}
	}
	for _, r := range i.Routes {
		if !r.Destination.IsValid() {
			return errors.New("a route without destination")
		}
		if g := r.Gateway; g.IsValid() && g.Is4() != r.Destination.Addr().Is4() {
			return fmt.Errorf("route %s: gateway of another family", r)
		}
	}
	return nil
}

// Validate reports the first thing in l that no kernel would take.
func (l Link) Validate() error {
	if err := attachment.ValidateIfName(l.Name); err != nil {
		return err
	}
	if err := validateMAC(l.MAC); err != nil {
		return err
	}
	if l.MTU < 0 || l.Index < 0 {
		return fmt.Errorf("negative MTU %d or index %d", l.MTU, l.Index)
	}
	if (l.Kind == KindMacvlan) != (l.Macvlan != nil) || (l.Kind == KindVLAN) != (l.VLAN != nil) {
		return fmt.Errorf("kind %q does not go with its attributes", l.Kind)
	}
	switch {
	case l.Macvlan != nil:
		if !slices.Contains(MacvlanModes, l.Macvlan.Mode) {
			return fmt.Errorf("unknown macvlan mode %q", l.Macvlan.Mode)
		}
	case l.VLAN != nil:
		return l.VLAN.Validate()
	default:
		return fmt.Errorf("unknown kind %q", l.Kind)
	}
	return nil
}

// Validate reports the first thing in d that can't be a device.
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
	if d.VLAN != nil {
		return d.VLAN.Validate()
	}
	if d.Bond != nil {
		for _, m := range d.Bond.Members {
			if err := attachment.ValidateIfName(m.Name); err != nil {
				return fmt.Errorf("member %q: %w", m.Name, err)
			}
		}
	}
	return nil
}

// ParseMAC returns s as Link.MAC holds it, or an error when s is not the
// address of an Ethernet device: 6 bytes, unicast, not zero.
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

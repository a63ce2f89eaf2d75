package netstate

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

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
		for name := range d.Bond.Options {
			if err := oneOf(BondOptions, "bond option", name); err != nil {
				return err
			}
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

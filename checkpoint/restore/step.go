package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Action is what a step does.
type Action string

// The actions. Each moves one thing towards the record; none deletes anything.
const (
	Enslave    Action = "enslave"
	RaiseMTU   Action = "raise-mtu"
	SetUp      Action = "set-up"
	CreateVLAN Action = "create-vlan"
	Create     Action = "create"
	SetMTU     Action = "set-mtu"
	SetMAC     Action = "set-mac"
	SetMacvlan Action = "set-macvlan"
	AddAddress Action = "add-address"
	AddRoute   Action = "add-route"
)

// Step is one change and the reason for it.
type Step struct {
	Action Action `json:"action"`
	// Device is what is changed.
	Device string `json:"device"`
	// On is the parent of a device to create, or the bond of a NIC to enslave.
	On     string `json:"on,omitempty"`
	Reason string `json:"reason"`

	// What the action is done with, by its kind.
	MTU     int                 `json:"mtu,omitempty"`
	MAC     string              `json:"mac,omitempty"`
	VLAN    *netstate.VLAN      `json:"vlan,omitempty"`
	Link    *netstate.Link      `json:"link,omitempty"`
	Address *netstate.Address   `json:"address,omitempty"`
	Route   *netstate.Route     `json:"route,omitempty"`
	create  *netstate.Interface // What Create makes, settings and all.
}

// String says what the step does, without the reason.
func (s Step) String() string {
	switch s.Action {
	case Enslave:
		return fmt.Sprintf("enslave %s to %s", s.Device, s.On)
	case RaiseMTU, SetMTU:
		return fmt.Sprintf("set MTU of %s to %d", s.Device, s.MTU)
	case SetUp:
		return fmt.Sprintf("set %s up", s.Device)
	case CreateVLAN:
		return fmt.Sprintf("create %s, %s on %s", s.Device, s.VLAN, s.On)
	case Create:
		return fmt.Sprintf("create %s, %s on %s", s.Device, s.Link.Kind, s.On)
	case SetMAC:
		return fmt.Sprintf("set MAC of %s to %s", s.Device, s.MAC)
	case SetMacvlan:
		return fmt.Sprintf("set mode of %s to %s", s.Device, s.Link.Macvlan.Mode)
	case AddAddress:
		return fmt.Sprintf("add address %s to %s", s.Address, s.Device)
	case AddRoute:
		return fmt.Sprintf("add route %s to %s", s.Route, s.Device)
	}
	return string(s.Action) + " " + s.Device
}

// Problem is a reason for which something can't be made to agree with its record.
type Problem struct {
	Reason string
	// Waiting says that time may mend it: a device that has yet to appear.
	Waiting bool
}

func (p *Problem) Error() string { return p.Reason }

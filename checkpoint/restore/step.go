package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Action is what a step does.
type Action string

// The actions. Each moves one thing towards the record; none deletes anything.
const (
	CreateBond    Action = "create-bond"
	Enslave       Action = "enslave"
	RaiseMTU      Action = "raise-mtu"
	SetUp         Action = "set-up"
	CreateVLAN    Action = "create-vlan"
	Create        Action = "create"
	MoveNIC       Action = "move-nic"
	SetMTU        Action = "set-mtu"
	SetMAC        Action = "set-mac"
	SetKind       Action = "set-kind"
	SetAttributes Action = "set-attributes"
	SetMaster     Action = "set-master"
	SetSetting    Action = "set-setting"
	AddAddress    Action = "add-address"
	AddRoute      Action = "add-route"
	OrderRoutes   Action = "order-routes"
	AddRule       Action = "add-rule"
	AddNeighbour  Action = "add-neighbour"
	AddQdisc      Action = "add-qdisc"
)

// Step is one change and the reason for it.
type Step struct {
	Action Action `json:"action"`
	// Device is what is changed.
	Device string `json:"device"`
	// On is the parent of a device to create, the bond of a NIC to enslave, the host's
	// NIC to move.
	On     string `json:"on,omitempty"`
	Reason string `json:"reason"`

	// What the action is done with, by its kind.
	MTU       int                 `json:"mtu,omitempty"`
	MAC       string              `json:"mac,omitempty"`
	VLAN      *netstate.VLAN      `json:"vlan,omitempty"`
	Bond      *netstate.Bond      `json:"bond,omitempty"`
	Link      *netstate.Link      `json:"link,omitempty"`
	Master    *netstate.Master    `json:"master,omitempty"`
	Setting   string              `json:"setting,omitempty"`
	Value     string              `json:"value,omitempty"`
	Address   *netstate.Address   `json:"address,omitempty"`
	Route     *netstate.Route     `json:"route,omitempty"`
	Order     *netstate.Order     `json:"order,omitempty"`
	Rule      *netstate.Rule      `json:"rule,omitempty"`
	Neighbour *netstate.Neighbour `json:"neighbour,omitempty"`
	Qdisc     *netstate.Qdisc     `json:"qdisc,omitempty"`
	create    *netstate.Interface // What Create and MoveNIC make, settings and all.
	device    netstate.Device     // What CreateVLAN and CreateBond make.
	// at and on are what Device and On were when the step was planned, of steps on
	// devices that others are stacked on. A device that a step before makes has a
	// negative index.
	at, on netstate.LiveDevice
}

// String says what the step does, without the reason.
func (s Step) String() string {
	switch s.Action {
	case CreateBond:
		return fmt.Sprintf("create %s, a bond of mode %s", s.Device, s.Bond.Mode)
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
	case MoveNIC:
		return fmt.Sprintf("move %s of the host to the sandbox as %s", s.On, s.Device)
	}
	return s.changes()
}

// changes is String for a change to an interface that is there.
func (s Step) changes() string {
	switch s.Action {
	case SetMAC:
		return fmt.Sprintf("set MAC of %s to %s", s.Device, s.MAC)
	case SetKind:
		return fmt.Sprintf("set the %s attributes of %s", s.Link.Kind, s.Device)
	case SetAttributes:
		return fmt.Sprintf("set the attributes of %s", s.Device)
	case SetMaster:
		return fmt.Sprintf("enslave %s to %s", s.Device, s.Master)
	case SetSetting:
		return fmt.Sprintf("set %s of %s to %s", s.Setting, s.Device, s.Value)
	case AddAddress:
		return fmt.Sprintf("add address %s to %s", s.Address, s.Device)
	case AddRoute:
		return fmt.Sprintf("add route %s to %s", s.Route, s.Device)
	case OrderRoutes:
		return fmt.Sprintf("put the routes of %s in order: %s", s.Device, s.Order)
	case AddRule:
		return fmt.Sprintf("add rule %s", s.Rule)
	case AddNeighbour:
		return fmt.Sprintf("add neighbour %s to %s", s.Neighbour, s.Device)
	case AddQdisc:
		return fmt.Sprintf("add qdisc %s to %s", s.Qdisc, s.Device)
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

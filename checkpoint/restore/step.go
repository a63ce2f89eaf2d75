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
	AddRule       Action = "add-rule"
	AddNeighbour  Action = "add-neighbour"
	AddQdisc      Action = "add-qdisc"
	// RepairHostAccess makes the path between a pod and its node right. Its reasons say what is wrong: all of it is mended at once.
	RepairHostAccess Action = "mend-host-access"
)

// Step is one change, the reason for it, and what became of it. Each action has the fields that it needs.
type Step struct {
	Action Action `json:"action"`
	// Device is the name of what is changed.
	Device string `json:"device"`
	// Parent is the parent of a device to create, the bond of a NIC to enslave, the host's
	// NIC to move.
	Parent string `json:"on,omitempty"`
	Reason string `json:"reason"`
	MTU    int    `json:"mtu,omitempty"`
	MAC    string `json:"mac,omitempty"`
	// VLAN, Bond and Link are those of a device to create or to move. Link also has the attributes to set.
	VLAN      *netstate.VLAN      `json:"vlan,omitempty"`
	Bond      *netstate.Bond      `json:"bond,omitempty"`
	Link      *netstate.Link      `json:"link,omitempty"`
	Master    *netstate.Master    `json:"master,omitempty"`
	Setting   string              `json:"setting,omitempty"`
	Value     string              `json:"value,omitempty"`
	Address   *netstate.Address   `json:"address,omitempty"`
	Route     *netstate.Route     `json:"route,omitempty"`
	Rule      *netstate.Rule      `json:"rule,omitempty"`
	Neighbour *netstate.Neighbour `json:"neighbour,omitempty"`
	Qdisc     *netstate.Qdisc     `json:"qdisc,omitempty"`
	// Error is why a step on a parent did not work. It is empty for one that worked, or that a dry run did not do.
	Error string `json:"error,omitempty"`
	// planned is Device as it was when the step was planned. Only steps on parents have it. A device
	// that a step makes has a negative index, and is there as it is to become.
	planned netstate.LiveDevice
	// related is the second device that such a step is about: the parent of a VLAN device, the bond of a member, or the
	// primary member of a bond. A bond whose primary member is not there has none.
	related netstate.LiveDevice
}

// String says what the step does, without the reason.
func (s Step) String() string {
	switch s.Action {
	case CreateBond:
		return fmt.Sprintf("create %s, a bond of mode %s", s.Device, s.Bond.Mode)
	case CreateVLAN:
		return fmt.Sprintf("create %s, %s on %s", s.Device, s.VLAN, s.Parent)
	case Create:
		return fmt.Sprintf("create %s, %s on %s", s.Device, s.Link.Kind, s.Parent)
	case MoveNIC:
		return fmt.Sprintf("move %s of the host to the sandbox as %s", s.Parent, s.Device)
	case Enslave:
		return fmt.Sprintf("enslave %s to %s", s.Device, s.Parent)
	case SetMaster:
		return fmt.Sprintf("enslave %s to %s", s.Device, s.Master)
	case SetMTU, RaiseMTU:
		return fmt.Sprintf("set MTU of %s to %d", s.Device, s.MTU)
	case SetMAC:
		return fmt.Sprintf("set MAC of %s to %s", s.Device, s.MAC)
	case SetKind:
		return fmt.Sprintf("set the %s attributes of %s", s.Link.Kind, s.Device)
	case SetAttributes:
		return "set the attributes of " + s.Device
	case SetSetting:
		return fmt.Sprintf("set %s of %s to %s", s.Setting, s.Device, s.Value)
	case SetUp:
		return fmt.Sprintf("set %s up", s.Device)
	case AddAddress:
		return fmt.Sprintf("add address %s to %s", s.Address, s.Device)
	case AddRoute:
		return fmt.Sprintf("add route %s to %s", s.Route, s.Device)
	case AddRule:
		return fmt.Sprintf("add rule %s", s.Rule)
	case AddNeighbour:
		return fmt.Sprintf("add neighbour %s to %s", s.Neighbour, s.Device)
	case AddQdisc:
		return fmt.Sprintf("add qdisc %s to %s", s.Qdisc, s.Device)
	case RepairHostAccess:
		return "mend the host access"
	}
	return fmt.Sprintf("%s %s", s.Action, s.Device)
}

// Problem is a reason why something cannot be made to agree with its record.
type Problem struct {
	Reason string
	// Transient says that waiting may solve it: a device may still appear.
	Transient bool
	// Device is the recorded name of the device of the host that it is about, empty if it is about none.
	Device string
	// Cause says it for all attachments that have the problem. It is empty if Reason has nothing of one of them only.
	Cause string
}

func problemf(format string, args ...any) *Problem {
	return &Problem{Reason: fmt.Sprintf(format, args...)}
}

// transientf returns a problem that waiting may solve.
func transientf(format string, args ...any) *Problem {
	return &Problem{Reason: fmt.Sprintf(format, args...), Transient: true}
}

func (p *Problem) Error() string { return p.Reason }

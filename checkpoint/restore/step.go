package restore

import (
	"encoding/json"

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
)

// Step is one change and the reason for it.
type Step struct {
	// Device is the name of what is changed.
	Device string
	Reason string
	change change
	// planned is Device as it was when the step was planned. Only steps on parents have it. A device
	// that a step makes has a negative index.
	planned netstate.LiveDevice
}

// change is what a step does: one type for each Action.
type change interface {
	action() Action
	// describe says what is done to the device, without the reason.
	describe(device string) string
	// encode fills in what JSON has of the change besides its action.
	encode(*encodedStep)
}

// deviceChange is a change that hands make to the device that the step was planned for.
type deviceChange interface {
	change
	run(*stepRunner, Step) error
}

// sandboxChange is a change to the interface of an attachment.
type sandboxChange interface {
	change
	apply(w *attachmentRestore, device string) error
}

// batchChange is a change of which several are made to an interface in one go. Each one alone would
// have to read all addresses or routes.
type batchChange interface {
	change
	// applyAll makes the changes of the steps, all of which are of its type.
	applyAll(w *attachmentRestore, steps []Step) error
}

// Action returns what the step does.
func (s Step) Action() Action { return s.change.action() }

// String says what the step does, without the reason.
func (s Step) String() string { return s.change.describe(s.Device) }

// MarshalJSON returns the step in the form that encodedStep describes.
func (s Step) MarshalJSON() ([]byte, error) { return json.Marshal(s.encoded()) }

func (s Step) encoded() encodedStep {
	e := encodedStep{Action: s.Action(), Device: s.Device, Reason: s.Reason}
	s.change.encode(&e)
	return e
}

// encodedStep is a step as JSON. Each action has the fields that it needs.
type encodedStep struct {
	Action Action `json:"action"`
	Device string `json:"device"`
	// Parent is the parent of a device to create, the bond of a NIC to enslave, the host's
	// NIC to move.
	Parent    string              `json:"on,omitempty"`
	Reason    string              `json:"reason"`
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
	Rule      *netstate.Rule      `json:"rule,omitempty"`
	Neighbour *netstate.Neighbour `json:"neighbour,omitempty"`
	Qdisc     *netstate.Qdisc     `json:"qdisc,omitempty"`
}

// StepResult is what became of a step that concerns no sandbox.
type StepResult struct {
	Step
	// Error is empty for a step that worked, or that a dry run did not do.
	Error string
}

// MarshalJSON returns the step in the form that encodedStep describes, with the error if there is one.
func (r StepResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		encodedStep
		Error string `json:"error,omitempty"`
	}{r.encoded(), r.Error})
}

// Problem is a reason why something cannot be made to agree with its record.
type Problem struct {
	Reason string
	// Transient says that waiting may solve it: a device may still appear.
	Transient bool
}

func (p *Problem) Error() string { return p.Reason }

package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// rebuildOptions says that the record has the whole state of an interface that is made.
var rebuildOptions = kernel.ConfigureOptions{Rebuild: true}

// create makes an interface as recorded, settings and all. parent is the name of its parent.
type create struct {
	recorded netstate.Interface
	parent   string
}

func (create) action() Action { return Create }

func (c create) describe(device string) string {
	return fmt.Sprintf("create %s, %s on %s", device, c.recorded.Link.Kind, c.parent)
}

func (c create) encode(e *encodedStep) { e.Parent, e.Link = c.parent, &c.recorded.Link }

func (c create) apply(w *attachmentRestore, _ string) (err error) {
	w.built, err = kernel.Build(w.parentNamespace(), w.sandbox, w.parent.Index, c.recorded, rebuildOptions)
	return err
}

// moveNIC moves a NIC of the host into the sandbox. hostName is its name in the host.
type moveNIC struct {
	recorded netstate.Interface
	hostName string
}

func (moveNIC) action() Action { return MoveNIC }

func (c moveNIC) describe(device string) string {
	return fmt.Sprintf("move %s of the host to the sandbox as %s", c.hostName, device)
}

func (c moveNIC) encode(e *encodedStep) { e.Parent, e.Link = c.hostName, &c.recorded.Link }

func (c moveNIC) apply(w *attachmentRestore, _ string) error {
	return w.moveNIC(c.recorded, rebuildOptions)
}

// setMAC gives the interface the MAC.
type setMAC struct{ mac string }

func (setMAC) action() Action { return SetMAC }

func (c setMAC) describe(device string) string {
	return fmt.Sprintf("set MAC of %s to %s", device, c.mac)
}

func (c setMAC) encode(e *encodedStep) { e.MAC = c.mac }

func (c setMAC) apply(w *attachmentRestore, device string) error {
	return w.sandbox.SetMAC(device, c.mac)
}

// setKind sets the attributes that only links of its kind have.
type setKind struct{ link netstate.Link }

func (setKind) action() Action { return SetKind }

func (c setKind) describe(device string) string {
	return fmt.Sprintf("set the %s attributes of %s", c.link.Kind, device)
}

func (c setKind) encode(e *encodedStep) { e.Link = &c.link }

func (c setKind) apply(w *attachmentRestore, _ string) error { return w.sandbox.SetKind(c.link) }

// setAttributes sets the attributes that links of all kinds have and that have no step of their own.
type setAttributes struct{ link netstate.Link }

func (setAttributes) action() Action { return SetAttributes }

func (setAttributes) describe(device string) string { return "set the attributes of " + device }

func (c setAttributes) encode(e *encodedStep) { e.Link = &c.link }

func (c setAttributes) apply(w *attachmentRestore, _ string) error {
	return w.sandbox.SetAttributes(c.link)
}

// setMaster makes the interface a port of the bridge or VRF.
type setMaster struct{ master netstate.Master }

func (setMaster) action() Action { return SetMaster }

func (c setMaster) describe(device string) string {
	return fmt.Sprintf("enslave %s to %s", device, c.master)
}

func (c setMaster) encode(e *encodedStep) { e.Master = &c.master }

func (c setMaster) apply(w *attachmentRestore, device string) error {
	return w.sandbox.SetMaster(device, c.master)
}

// setSetting sets a sysctl of the interface.
type setSetting struct{ setting, value string }

func (setSetting) action() Action { return SetSetting }

func (c setSetting) describe(device string) string {
	return fmt.Sprintf("set %s of %s to %s", c.setting, device, c.value)
}

func (c setSetting) encode(e *encodedStep) { e.Setting, e.Value = c.setting, c.value }

func (c setSetting) apply(w *attachmentRestore, device string) error {
	return w.sandbox.WriteSetting(device, c.setting, c.value)
}

// addRule adds a rule that concerns the interface.
type addRule struct{ rule netstate.Rule }

func (addRule) action() Action { return AddRule }

func (c addRule) describe(string) string { return fmt.Sprintf("add rule %s", c.rule) }

func (c addRule) encode(e *encodedStep) { e.Rule = &c.rule }

func (c addRule) apply(w *attachmentRestore, _ string) error { return w.sandbox.AddRule(c.rule) }

// addNeighbour adds a permanent neighbour.
type addNeighbour struct{ neighbour netstate.Neighbour }

func (addNeighbour) action() Action { return AddNeighbour }

func (c addNeighbour) describe(device string) string {
	return fmt.Sprintf("add neighbour %s to %s", c.neighbour, device)
}

func (c addNeighbour) encode(e *encodedStep) { e.Neighbour = &c.neighbour }

func (c addNeighbour) apply(w *attachmentRestore, device string) error {
	return w.sandbox.AddNeighbour(device, c.neighbour)
}

// addQdisc adds a qdisc with its filters.
type addQdisc struct{ qdisc netstate.Qdisc }

func (addQdisc) action() Action { return AddQdisc }

func (c addQdisc) describe(device string) string {
	return fmt.Sprintf("add qdisc %s to %s", c.qdisc, device)
}

func (c addQdisc) encode(e *encodedStep) { e.Qdisc = &c.qdisc }

func (c addQdisc) apply(w *attachmentRestore, device string) error {
	return w.sandbox.AddQdisc(device, c.qdisc)
}

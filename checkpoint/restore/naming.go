package restore

import (
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// Naming knows the devices of the host by which an operator can mean an attachment.
type Naming struct {
	plan *ParentPlan
	// devices are the devices of the host, without what the plan would add.
	devices netstate.Devices
}

// NewNaming looks for the hardware of the records and of what is left of the unreadable ones among the devices.
func NewNaming(devices netstate.Devices, records []checkpoint.Record, unreadable []checkpoint.Unreadable) *Naming {
	usable := slices.Clone(records)
	for _, u := range unreadable {
		usable = append(usable, u.Partial)
	}
	return &Naming{plan: NewParentPlan(devices, NICs(usable), ParentOptions{}), devices: devices}
}

// Names returns the names of all devices that the recorded interface is stacked on, members of bonds included: those
// that the devices have now, and those that they had. A former name that another device has now means that one.
func (n *Naming) Names(i netstate.Interface) []string {
	oldNames := netstate.ChainNames(i.Parents)
	if len(i.Parents) == 0 || i.ParentsInSandbox {
		return oldNames
	}
	names := netstate.ChainNames(n.plan.chain(i.Parents).found)
	for _, name := range oldNames {
		if _, occupied := n.devices.ByName(name); !occupied {
			names = appendNew(names, name)
		}
	}
	return names
}

// Candidates is checkpoint.Candidates. If the selection is by a parent, each thing also has the names that its parents
// have now.
func Candidates(records []checkpoint.Record, unreadable []checkpoint.Unreadable, sel selection.Selection) ([]selection.Candidate, error) {
	things := checkpoint.Candidates(records, unreadable)
	if sel.Parent == "" {
		return things, nil
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	devices, err := host.Devices()
	if err != nil {
		return nil, err
	}
	naming := NewNaming(devices, records, unreadable)
	for i := range records {
		things[i].Parents = naming.Names(records[i].Interface)
	}
	for i := range unreadable {
		things[len(records)+i].Parents = naming.Names(unreadable[i].Partial.Interface)
	}
	return things, nil
}

// Select is the store's, by the names that the parents have now too.
func Select(store *checkpoint.Store, sel selection.Selection) ([]checkpoint.Record, []checkpoint.Unreadable, error) {
	return store.SelectAmong(sel, func(records []checkpoint.Record, unreadable []checkpoint.Unreadable) ([]selection.Candidate, error) {
		return Candidates(records, unreadable, sel)
	})
}

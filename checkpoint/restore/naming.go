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
	// there are the devices of the host, without what the plan would add.
	there netstate.Devices
}

// NewNaming looks for the hardware of the records and of what is left of the unreadable ones among the devices.
func NewNaming(there netstate.Devices, records []checkpoint.Record, unreadable []checkpoint.Unreadable) *Naming {
	all := slices.Clone(records)
	for _, u := range unreadable {
		all = append(all, u.Left)
	}
	all = slices.DeleteFunc(all, func(r checkpoint.Record) bool {
		return r.Interface.Link.Kind == netstate.KindNIC && r.Interface.Link.NIC == nil
	})
	return &Naming{plan: NewParentPlan(there, recordedNICs(all), ParentOptions{}), there: there}
}

// Of returns the names of all devices that the recorded interface is stacked on, members of bonds included: those
// that the devices have now, and those that they had. A former name that another device has now means that one.
func (n *Naming) Of(i netstate.Interface) []string {
	were := netstate.ChainNames(i.Parents)
	if len(i.Parents) == 0 || i.ParentsInSandbox {
		return were
	}
	names := netstate.ChainNames(n.plan.chain(i.Parents).now)
	for _, was := range were {
		if _, taken := n.there.ByName(was); !taken {
			names = appendNew(names, was)
		}
	}
	return names
}

// Things is checkpoint.Things. If the selection is by a parent, each thing also has the names that its parents
// have now.
func Things(records []checkpoint.Record, unreadable []checkpoint.Unreadable, by selection.Selection) ([]selection.Thing, error) {
	things := checkpoint.Things(records, unreadable)
	if by.Parent == "" {
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
		things[i].Parents = naming.Of(records[i].Interface)
	}
	for i := range unreadable {
		things[len(records)+i].Parents = naming.Of(unreadable[i].Left.Interface)
	}
	return things, nil
}

// Select is the store's, by the names that the parents have now too.
func Select(store *checkpoint.Store, by selection.Selection) ([]checkpoint.Record, []checkpoint.Unreadable, error) {
	return store.SelectAmong(by, func(records []checkpoint.Record, unreadable []checkpoint.Unreadable) ([]selection.Thing, error) {
		return Things(records, unreadable, by)
	})
}

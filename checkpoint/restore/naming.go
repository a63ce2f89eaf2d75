package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// names returns the names of all devices that the recorded interface is stacked on, members of bonds included: those
// that the devices have now, and those that they had. A former name that another device has now means that one.
func (p *ParentPlan) names(i netstate.Interface) []string {
	oldNames := netstate.ChainNames(i.Parents)
	parents := checkpoint.HostParents(i)
	if len(parents) == 0 {
		return oldNames
	}
	names := netstate.ChainNames(p.chain(parents).Found)
	for _, name := range oldNames {
		if i := p.byName(name); i < 0 || p.devices[i].Index < 0 {
			addNew(&names, name)
		}
	}
	return names
}

// planNames returns a plan for names. It looks for the hardware of the records and of what is left of the unreadable ones among the devices.
func planNames(devices netstate.Devices, records []checkpoint.Record, unreadable []checkpoint.Unreadable) *ParentPlan {
	usable := slices.Clone(records)
	for _, u := range unreadable {
		usable = append(usable, u.Partial)
	}
	return NewParentPlan(devices, NICs(usable), ParentOptions{})
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
	plan := planNames(devices, records, unreadable)
	for i := range records {
		things[i].Parents = plan.names(records[i].Interface)
	}
	for i := range unreadable {
		things[len(records)+i].Parents = plan.names(unreadable[i].Partial.Interface)
	}
	return things, nil
}

// Select is the store's, by the names that the parents have now too.
func Select(store *checkpoint.Store, sel selection.Selection) ([]checkpoint.Record, []checkpoint.Unreadable, error) {
	return store.SelectAmong(sel, func(records []checkpoint.Record, unreadable []checkpoint.Unreadable) ([]selection.Candidate, error) {
		return Candidates(records, unreadable, sel)
	})
}

// checkNames refuses names in --parent that cannot be right. A restore writes the new names into the records. So a run that is told
// the same again finds only those, and gets a note.
func checkNames(mapped map[string]string, records []checkpoint.Record) (notes []string, err error) {
	if err := checkOverlap(mapped); err != nil || len(mapped) == 0 {
		return nil, err
	}
	names := hostNames(records)
	for _, oldName := range slices.Sorted(maps.Keys(mapped)) {
		newName := mapped[oldName]
		switch {
		case names[oldName]:
		case names[newName]:
			notes = append(notes, fmt.Sprintf("--parent %s=%s moves nothing: no checkpoint has a parent or bond member %s", oldName, newName, oldName))
		default:
			return nil, fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; they have: %s",
				oldName, newName, oldName, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
	return notes, nil
}

// checkOverlap refuses to give one device the old name of another: a second run would change the names in the
// checkpoints once more.
func checkOverlap(mapped map[string]string) error {
	for _, oldName := range slices.Sorted(maps.Keys(mapped)) {
		newName := mapped[oldName]
		if next, chained := mapped[newName]; chained && newName != oldName && next != newName {
			return fmt.Errorf("--parent %s=%s together with --parent %s=%s: %s would mean two devices. "+
				"NICs that exchanged their names are told apart by their hardware: relink restore without --parent. "+
				"To move pods, restore them by name with one of the two: relink restore --parent %s=%s POD",
				oldName, newName, newName, next, newName, oldName, newName)
		}
	}
	return nil
}

// hostNames are the names of devices of the host that the records have.
func hostNames(records []checkpoint.Record) map[string]bool {
	names := map[string]bool{}
	for i := range records {
		recorded := netstate.ChainNames(checkpoint.HostParents(records[i].Interface))
		if link := records[i].Interface.Link; link.Kind == netstate.KindNIC {
			recorded = append(recorded, nameInHost(link))
		}
		for _, name := range recorded {
			names[name] = true
		}
	}
	return names
}

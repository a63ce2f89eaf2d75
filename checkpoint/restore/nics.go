package restore

import (
	"cmp"
	"context"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// isSameNIC says that two records mean one NIC, or one slot whose card was exchanged between the records.
// With the same MAC they mean one NIC, unless both the places and the names differ: then two NICs have the
// MAC. Without the same MAC they mean one NIC if both the place and the name are the same, because several
// NICs can be at one place.
func isSameNIC(a, b netstate.Member) bool {
	apart := a.BusAddress != "" && b.BusAddress != "" && !a.SamePlace(b.NIC)
	switch {
	case a.PermanentMAC != "" && a.PermanentMAC == b.PermanentMAC:
		return !apart || a.Name == b.Name
	case isExchanged(a.NIC, b.NIC):
		return a.SamePlace(b.NIC) && a.Name == b.Name
	}
	return !apart && a.Name == b.Name
}

// allNICs returns the NICs that any checkpoint names, also those of sandboxes that are not selected.
// The NICs of sandboxes that are gone are nobody's. chosen are the selected records.
func (r *restoreRun) allNICs(ctx context.Context, chosen locatedRecords) ([]netstate.Member, error) {
	if !r.Select.MatchesAll() {
		records, _, err := r.Store.Select(selection.Selection{})
		if err != nil {
			return nil, err
		}
		chosen = r.locateNamespaces(ctx, records)
	}
	return NICs(append(slices.Clip(chosen.found), chosen.uncertain...)), nil
}

// NICs returns all NICs that the records name, each description once.
func NICs(records []checkpoint.Record) []netstate.Member {
	var nics []netstate.Member
	for i := range records {
		nics = appendKnown(nics, hostNICs(&records[i])...)
	}
	return nics
}

// hostNICs returns the NICs of the host that the record names.
func hostNICs(r *checkpoint.Record) []netstate.Member {
	nics := hardwareOf(r.Interface.Parents)
	if link := r.Interface.Link; link.Kind == netstate.KindNIC {
		nics = append(nics, netstate.Member{Name: nameInHost(link), NIC: *cmp.Or(link.NIC, &netstate.NIC{})})
	}
	return nics
}

// appendKnown appends the members that are new and describe their NIC by more than its name. Their indices are
// left out: they differ between records of one NIC.
func appendKnown(nics []netstate.Member, members ...netstate.Member) []netstate.Member {
	for _, m := range members {
		m.IfIndex = 0
		if m.Identified() && !slices.Contains(nics, m) {
			nics = append(nics, m)
		}
	}
	return nics
}

// hardwareOf returns the NICs in the chain, members of bonds among them.
func hardwareOf(chain []netstate.Device) []netstate.Member {
	var nics []netstate.Member
	for _, d := range chain {
		if d.Kind == netstate.KindNIC {
			nics = append(nics, netstate.Member{Name: d.Name, NIC: d.NIC})
		}
		if d.Bond != nil {
			nics = append(nics, d.Bond.Members...)
		}
	}
	return nics
}

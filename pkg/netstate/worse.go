package netstate

import (
	"slices"
	"strings"
)

// DownReason says what keeps an interface from working: it is down, or its parent is. parentDown is the name of a parent that is down. It is
// empty if nothing is seen.
func DownReason(live Interface, parentDown string) string {
	switch {
	case !live.Link.Up:
		return live.Link.Name + " is down"
	case parentDown != "":
		return "its parent " + parentDown + " is down"
	}
	return ""
}

// FirstDown returns the name of the first of the parents that is down, empty if none is.
func (ds Devices) FirstDown(parents []Device) string {
	for _, p := range parents {
		if d, ok := ds.ByName(p.Name); ok && !d.Up {
			return p.Name
		}
	}
	return ""
}

// essential are the fields that make an interface what it is.
var essential = []Field{FieldKind, FieldParent, FieldMaster, FieldAddress, FieldRoute}

// WorseReason says why the live state must not replace the recorded one, empty if it may. It decides for those who record it, and for those
// who advise that. A link that went down has lost its routes. A link whose parent went away is another one now. diffs are the differences from
// the record. Where nobody can tell whether an address or a route was lost or was taken away on purpose, both count as lost. An interface that
// became the port of a bridge needs neither: there they do not count, nor if onPurpose says that they were taken away.
func WorseReason(recorded, live Interface, parentDown string, diffs []Difference, onPurpose bool) string {
	if reason := DownReason(live, parentDown); reason != "" {
		return reason
	}
	onPurpose = onPurpose || live.Master != nil && live.Master.Kind == KindBridge && recorded.Master == nil
	var lost []Difference
	for _, d := range diffs {
		if onPurpose && (d.Field == FieldAddress || d.Field == FieldRoute) {
			continue
		}
		if slices.Contains(essential, d.Field) && (d.Live == "" || d.Field == FieldKind || d.Field == FieldParent) {
			lost = append(lost, d)
		}
	}
	return JoinDifferences(lost)
}

// JoinDifferences says all differences in words.
func JoinDifferences(diffs []Difference) string {
	var texts []string
	for _, d := range diffs {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "; ")
}

package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
)

// checkNames refuses names in --parent that cannot be right. A restore writes the new names into the records. So a run that is told
// the same again finds only those, and notes it.
func (r *restoreRun) checkNames(records []checkpoint.Record) error {
	if err := checkOverlap(r.Mapped); err != nil || len(r.Mapped) == 0 {
		return err
	}
	names := hostNames(records)
	for _, oldName := range slices.Sorted(maps.Keys(r.Mapped)) {
		newName := r.Mapped[oldName]
		switch {
		case names[oldName]:
		case names[newName]:
			r.notes = append(r.notes, fmt.Sprintf("--parent %s=%s moves nothing: no checkpoint has a parent or bond member %s", oldName, newName, oldName))
		default:
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; they have: %s",
				oldName, newName, oldName, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
	return nil
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
		if records[i].Interface.ParentsInSandbox {
			continue
		}
		for _, m := range hostNICs(&records[i]) {
			names[m.Name] = true
		}
		for _, p := range records[i].Interface.Parents {
			names[p.Name] = true
		}
	}
	return names
}

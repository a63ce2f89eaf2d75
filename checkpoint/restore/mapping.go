package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// checkNames refuses names in --parent that cannot be right.
func (o Options) checkNames(records []checkpoint.Record) error {
	if err := checkOverlap(o.Mapped); err != nil {
		return err
	}
	return checkMapped(o.Mapped, records, o.Store.RenamedTo)
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

// checkMapped refuses an old name in --parent that no record has. A restore writes the new names into
// the records, so that an old name may not be in them any more. renamed returns the new name that an
// earlier restore was told for it, "" if there is none.
func checkMapped(mapped map[string]string, records []checkpoint.Record, renamed func(oldName string) (string, error)) error {
	if len(mapped) == 0 {
		return nil
	}
	names := hostNames(records)
	for _, oldName := range slices.Sorted(maps.Keys(mapped)) {
		if names[oldName] {
			continue
		}
		newName := mapped[oldName]
		before, err := renamed(oldName)
		switch {
		case err != nil:
			return fmt.Errorf("--parent %s=%s: %w", oldName, newName, err)
		case before == newName: // Said again, it changes nothing.
		case before != "":
			return fmt.Errorf("--parent %s=%s: an earlier restore was told that %s is %s, and the checkpoints name that now: say --parent %s=%s",
				oldName, newName, oldName, before, before, newName)
		case len(names) == 0:
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; there is none that names a device of the host", oldName, newName, oldName)
		default:
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; they have: %s",
				oldName, newName, oldName, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
	return nil
}

// hostNames are the names of devices of the host that the records have.
func hostNames(records []checkpoint.Record) map[string]bool {
	names := map[string]bool{}
	for i := range records {
		if link := records[i].Interface.Link; link.Kind == netstate.KindNIC {
			names[nameInHost(link)] = true
		}
		if !onHost(&records[i]) {
			continue
		}
		for _, p := range records[i].Interface.Parents {
			names[p.Name] = true
			if p.Bond == nil {
				continue
			}
			for _, m := range p.Bond.Members {
				names[m.Name] = true
			}
		}
	}
	return names
}

// noteMapped writes down what the operator said of the names, before any record changes.
func (r *restoreRun) noteMapped() {
	for _, oldName := range slices.Sorted(maps.Keys(r.Mapped)) {
		if newName := r.Mapped[oldName]; oldName != newName && !r.DryRun {
			if err := r.Store.NoteRenamed(oldName, newName); err != nil {
				r.notes = append(r.notes, fmt.Sprintf("%v: do not say --parent %s=%s again", err, oldName, newName))
			}
		}
	}
}

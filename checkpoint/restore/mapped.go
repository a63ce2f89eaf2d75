package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// checkMapped refuses an old name in --parent that no record has. A restore writes the new names into
// the records, so that an old name may not be in them any more. renamed returns the new name that an
// earlier restore was told for it, "" if there is none.
func checkMapped(mapped map[string]string, records []checkpoint.Record, renamed func(was string) (string, error)) error {
	if len(mapped) == 0 {
		return nil
	}
	known := hostNames(records)
	for _, was := range slices.Sorted(maps.Keys(mapped)) {
		if known[was] {
			continue
		}
		is := mapped[was]
		before, err := renamed(was)
		switch {
		case err != nil:
			return fmt.Errorf("--parent %s=%s: %w", was, is, err)
		case before == is: // Said again, it changes nothing.
		case before != "":
			return fmt.Errorf("--parent %s=%s: an earlier restore was told that %s is %s, and the checkpoints name that now: say --parent %s=%s",
				was, is, was, before, before, is)
		case len(known) == 0:
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; there is none that names a device of the host", was, is, was)
		default:
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or bond member %s; they have: %s",
				was, is, was, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}

// checkExchange refuses to give one device the old name of another for a part of the checkpoints. That part would
// have the new names, and the other part the old ones. Nothing would tell them apart then, so that no later
// restore could finish the exchange.
func checkExchange(mapped map[string]string, by selection.Selection) error {
	if by.All() {
		return nil
	}
	for _, was := range slices.Sorted(maps.Keys(mapped)) {
		is := mapped[was]
		next, again := mapped[is]
		if !again || is == was || next == is {
			continue
		}
		return fmt.Errorf("--parent %s=%s together with --parent %s=%s changes the meaning of %s, so it has to be for all pods at once: "+
			"restore without %s", was, is, is, next, is, strings.Join(by.Words(), " "))
	}
	return nil
}

// hostNames are the names of devices of the host that the records have.
func hostNames(records []checkpoint.Record) map[string]bool {
	known := map[string]bool{}
	for i := range records {
		if link := records[i].Interface.Link; link.Kind == netstate.KindNIC {
			known[nameInHost(link)] = true
		}
		if !onHost(&records[i]) {
			continue
		}
		for _, p := range records[i].Interface.Parents {
			known[p.Name] = true
			if p.Bond == nil {
				continue
			}
			for _, m := range p.Bond.Members {
				known[m.Name] = true
			}
		}
	}
	return known
}

// noteMapped writes down what the operator said of the names, before any record changes.
func (r *run) noteMapped() {
	for _, was := range slices.Sorted(maps.Keys(r.Mapped)) {
		if is := r.Mapped[was]; was != is && !r.DryRun {
			if err := r.Store.NoteRenamed(was, is); err != nil {
				r.notes = append(r.notes, fmt.Sprintf("%v: do not say --parent %s=%s again", err, was, is))
			}
		}
	}
}

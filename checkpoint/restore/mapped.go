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

// checkNames refuses names in --parent that cannot be right.
func (o Options) checkNames(records []checkpoint.Record) error {
	before, err := o.Store.Exchanged()
	if err != nil {
		return err
	}
	if err := checkExchange(o.Mapped, o.Select, before, o.Store.ExchangedPath()); err != nil {
		return err
	}
	return checkMapped(o.Mapped, records, o.Store.RenamedTo)
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

// exchangeOf returns the pairs of names that are said, if one device gets the old name of another. It is empty if no
// meaning of a name changes.
func exchangeOf(mapped map[string]string) string {
	if _, _, found := overlap(mapped); !found {
		return ""
	}
	var pairs []string
	for _, oldName := range slices.Sorted(maps.Keys(mapped)) {
		if newName := mapped[oldName]; newName != oldName {
			pairs = append(pairs, oldName+"="+newName)
		}
	}
	return strings.Join(pairs, " ")
}

// overlap returns two pairs of names, by their old ones. The new name of the first is the old name of the second.
func overlap(mapped map[string]string) (first, second string, found bool) {
	for _, oldName := range slices.Sorted(maps.Keys(mapped)) {
		newName := mapped[oldName]
		if next, chained := mapped[newName]; chained && newName != oldName && next != newName {
			return oldName, newName, true
		}
	}
	return "", "", false
}

// checkExchange refuses to give one device the old name of another for a part of the checkpoints, or a second time.
// A part would have the new names, and the other part the old ones. Nothing would tell them apart then, so that no
// later restore could finish the exchange. And a second time would change the names of those once more that have the new
// ones. before is the last exchange for which checkpoints were rewritten, and note is the file that says so.
func checkExchange(mapped map[string]string, sel selection.Selection, before, note string) error {
	oldName, newName, found := overlap(mapped)
	if !found {
		return nil
	}
	option := fmt.Sprintf("--parent %s=%s together with --parent %s=%s", oldName, newName, newName, mapped[newName])
	if !sel.MatchesAll() {
		return fmt.Errorf("%s changes the meaning of %s, so it has to be for all pods at once: restore without %s",
			option, newName, strings.Join(sel.Words(), " "))
	}
	if before == exchangeOf(mapped) {
		return fmt.Errorf("%s was said before: the checkpoints that it has reached name the new devices, and a second time would change them once more. "+
			"If all pods were restored: relink restore. For a pod that it did not reach: relink restore --parent %s=%s POD. To exchange all once more: remove %s first",
			option, oldName, newName, note)
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

// noteExchange writes down that checkpoints change their names now, if --parent exchanges names. It comes before the first
// checkpoint changes: without the note, the same command would change a part of them twice.
func (r *restoreRun) noteExchange() error {
	r.exchange.Do(func() {
		if exchange := exchangeOf(r.Mapped); exchange != "" {
			r.exchangeErr = r.Store.NoteExchanged(exchange)
		}
	})
	return r.exchangeErr
}

// exchangeProblem says what to do about attachments that an exchange of names did not reach. It returns "" if there are
// none.
func (r *restoreRun) exchangeProblem(outcomes []*Outcome) string {
	oldName, newName, found := overlap(r.Mapped)
	if !found || r.DryRun {
		return ""
	}
	for _, o := range outcomes {
		if o.State == Failed {
			return fmt.Sprintf("not all pods were reached by the exchange of names: before any other restore, restore each of them by its own device alone, "+
				"such as relink restore --parent %s=%s %s", oldName, newName, o.argument())
		}
	}
	return ""
}

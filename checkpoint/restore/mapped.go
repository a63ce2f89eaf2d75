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

// exchangeOf returns the pairs of names that are said, if one device gets the old name of another. It is empty if no
// meaning of a name changes.
func exchangeOf(mapped map[string]string) string {
	if _, _, found := overlap(mapped); !found {
		return ""
	}
	var pairs []string
	for _, was := range slices.Sorted(maps.Keys(mapped)) {
		if is := mapped[was]; is != was {
			pairs = append(pairs, was+"="+is)
		}
	}
	return strings.Join(pairs, " ")
}

// overlap returns two pairs of names, by their old ones. The new name of the first is the old name of the second.
func overlap(mapped map[string]string) (first, second string, found bool) {
	for _, was := range slices.Sorted(maps.Keys(mapped)) {
		is := mapped[was]
		if next, again := mapped[is]; again && is != was && next != is {
			return was, is, true
		}
	}
	return "", "", false
}

// checkExchange refuses to give one device the old name of another for a part of the checkpoints, or a second time.
// A part would have the new names, and the other part the old ones. Nothing would tell them apart then, so that no
// later restore could finish the exchange. And a second time would change the names of those once more that have the new
// ones. before is the last exchange for which checkpoints were rewritten, and note is the file that says so.
func checkExchange(mapped map[string]string, by selection.Selection, before, note string) error {
	was, is, found := overlap(mapped)
	if !found {
		return nil
	}
	said := fmt.Sprintf("--parent %s=%s together with --parent %s=%s", was, is, is, mapped[is])
	if !by.All() {
		return fmt.Errorf("%s changes the meaning of %s, so it has to be for all pods at once: restore without %s",
			said, is, strings.Join(by.Words(), " "))
	}
	if before == exchangeOf(mapped) {
		return fmt.Errorf("%s was said before: the checkpoints that it has reached name the new devices, and a second time would change them once more. "+
			"If all pods were restored: relink restore. For a pod that it did not reach: relink restore --parent %s=%s POD. To exchange all once more: remove %s first",
			said, was, is, note)
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

// noteExchange writes down that checkpoints change their names now, if --parent exchanges names. It comes before the first
// checkpoint changes: without the note, the same command would change a part of them twice.
func (r *run) noteExchange() error {
	r.exchange.Do(func() {
		if exchange := exchangeOf(r.Mapped); exchange != "" {
			r.exchangeErr = r.Store.NoteExchanged(exchange)
		}
	})
	return r.exchangeErr
}

// exchangeProblem says what to do about attachments that an exchange of names did not reach. It returns "" if there are
// none.
func (r *run) exchangeProblem(outcomes []*Outcome) string {
	was, is, found := overlap(r.Mapped)
	if !found || r.DryRun {
		return ""
	}
	for _, o := range outcomes {
		if o.State == Failed {
			return fmt.Sprintf("not all pods were reached by the exchange of names: before any other restore, restore each of them by its own device alone, "+
				"such as relink restore --parent %s=%s %s", was, is, o.argument())
		}
	}
	return ""
}

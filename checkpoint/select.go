package checkpoint

import (
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// Select returns what List does, limited to what is selected. selection.ErrNothing and
// selection.ErrAmbiguous can be matched.
func (s *Store) Select(by selection.Selection) ([]Record, []Unreadable, error) {
	return s.SelectAmong(by, func(records []Record, unreadable []Unreadable) ([]selection.Thing, error) {
		return Things(records, unreadable), nil
	})
}

// SelectAmong is Select for a caller who knows more of the records than they have. thingsOf returns what Things
// does.
func (s *Store) SelectAmong(by selection.Selection, thingsOf func([]Record, []Unreadable) ([]selection.Thing, error)) ([]Record, []Unreadable, error) {
	records, unreadable, err := s.List()
	if err != nil || by.All() {
		return records, unreadable, err
	}
	things, err := thingsOf(records, unreadable)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, nil, err
	}
	return those(records, chosen), those(unreadable, chosen[len(records):]), nil
}

// Things returns what can be selected: the records, and then what cannot be read. Of the latter is known what
// is left of it.
func Things(records []Record, unreadable []Unreadable) []selection.Thing {
	things := make([]selection.Thing, 0, len(records)+len(unreadable))
	for _, r := range records {
		things = append(things, selection.Thing{
			Pod: r.Pod, ContainerID: r.Attachment.ContainerID, Network: r.Attachment.Network,
			Parents: netstate.ChainNames(r.Interface.Parents),
		})
	}
	for _, u := range unreadable {
		things = append(things, selection.Thing{
			Pod: u.Left.Pod, ContainerID: u.ContainerID, Network: u.Left.Attachment.Network,
			Parents: netstate.ChainNames(u.Left.Interface.Parents), Unknown: true,
		})
	}
	return things
}

// those returns what is chosen of the list, which it changes.
func those[T any](list []T, chosen []bool) []T {
	i := -1
	return slices.DeleteFunc(list, func(T) bool {
		i++
		return !chosen[i]
	})
}

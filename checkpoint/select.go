package checkpoint

import (
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// Select returns what List does, limited to what is selected. selection.ErrNothing and
// selection.ErrAmbiguous can be matched.
func (s *Store) Select(sel selection.Selection) ([]Record, []Unreadable, error) {
	return s.SelectAmong(sel, func(records []Record, unreadable []Unreadable) ([]selection.Candidate, error) {
		return Candidates(records, unreadable), nil
	})
}

// SelectAmong is Select for a caller who knows more of the records than they have. list returns what Candidates
// does.
func (s *Store) SelectAmong(sel selection.Selection, list func([]Record, []Unreadable) ([]selection.Candidate, error)) ([]Record, []Unreadable, error) {
	records, unreadable, err := s.List()
	if err != nil || sel.MatchesAll() {
		return records, unreadable, err
	}
	candidates, err := list(records, unreadable)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := sel.Choose(candidates)
	if err != nil {
		return nil, nil, err
	}
	return selection.Keep(records, chosen), selection.Keep(unreadable, chosen[len(records):]), nil
}

// Candidates returns what can be selected: the records, and then what cannot be read. Of the latter is known what
// is left of it.
func Candidates(records []Record, unreadable []Unreadable) []selection.Candidate {
	candidates := make([]selection.Candidate, 0, len(records)+len(unreadable))
	for _, r := range records {
		candidates = append(candidates, candidateOf(r, r.Attachment.ContainerID))
	}
	for _, u := range unreadable {
		c := candidateOf(u.Partial, u.ContainerID)
		c.Unknown = true
		candidates = append(candidates, c)
	}
	return candidates
}

func candidateOf(r Record, containerID string) selection.Candidate {
	return selection.Candidate{Pod: r.Pod, ContainerID: containerID, Network: r.Attachment.Network, Parents: netstate.ChainNames(r.Interface.Parents)}
}

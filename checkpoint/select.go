package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Select returns what List does, limited to the sandboxes that ids name, each by
// its container ID, a prefix of it, or the pod's namespace/name. No ids: all. An
// ID that names nothing, or a prefix of several sandboxes' IDs, is an error.
func (s *Store) Select(ids []string) ([]Record, []Unreadable, error) {
	records, unreadable, err := s.List()
	if err != nil || len(ids) == 0 {
		return records, unreadable, err
	}
	chosen := map[string]bool{}
	for _, id := range ids {
		if id == "" {
			return nil, nil, errors.New("an empty sandbox ID: give a container ID, a prefix of it, or namespace/pod")
		}
		sandboxes := matching(records, unreadable, id)
		switch {
		case len(sandboxes) == 0:
			return nil, nil, fmt.Errorf("no checkpoint of sandbox or pod %q: relink list shows what there is", id)
		case len(sandboxes) > 1 && !strings.Contains(id, "/"):
			return nil, nil, fmt.Errorf("%q begins the IDs of %d sandboxes: give more of it", id, len(sandboxes))
		}
		for _, sandbox := range sandboxes {
			chosen[sandbox] = true
		}
	}
	return slices.DeleteFunc(records, func(r Record) bool { return !chosen[r.Attachment.ContainerID] }),
		slices.DeleteFunc(unreadable, func(u Unreadable) bool { return !chosen[u.ContainerID] }), nil
}

// matching returns the container IDs that id means. A pod can have two, while its
// old sandbox is being replaced.
func matching(records []Record, unreadable []Unreadable, id string) []string {
	var found []string
	add := func(containerID string) {
		if !slices.Contains(found, containerID) {
			found = append(found, containerID)
		}
	}
	exact := slices.ContainsFunc(records, func(r Record) bool { return r.Attachment.ContainerID == id }) ||
		slices.ContainsFunc(unreadable, func(u Unreadable) bool { return u.ContainerID == id })
	if exact {
		return []string{id}
	}
	for _, r := range records {
		if strings.HasPrefix(r.Attachment.ContainerID, id) || (r.Pod.Name != "" && r.Pod.String() == id) {
			add(r.Attachment.ContainerID)
		}
	}
	for _, u := range unreadable {
		if strings.HasPrefix(u.ContainerID, id) {
			add(u.ContainerID)
		}
	}
	return found
}

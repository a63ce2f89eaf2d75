package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// choose returns the actions on the sandboxes that ids name, as checkpoint.Select
// has it: by container ID, a prefix of it, or the pod's namespace/name. No ids: all.
func choose(actions []Action, ids []string) ([]Action, error) {
	if len(ids) == 0 {
		return actions, nil
	}
	chosen := map[string]bool{}
	for _, id := range ids {
		if id == "" {
			return nil, errors.New("an empty sandbox ID: give a container ID, a prefix of it, or namespace/pod")
		}
		sandboxes := matching(actions, id)
		switch {
		case len(sandboxes) == 0:
			return nil, fmt.Errorf("no running sandbox or pod %q with an interface that can be remembered", id)
		case len(sandboxes) > 1 && !strings.Contains(id, "/"):
			return nil, fmt.Errorf("%q begins the IDs of %d sandboxes: give more of it", id, len(sandboxes))
		}
		for _, sandbox := range sandboxes {
			chosen[sandbox] = true
		}
	}
	var some []Action
	for _, a := range actions {
		if chosen[a.Attachment.ContainerID] {
			some = append(some, a)
		}
	}
	return some, nil
}

func matching(actions []Action, id string) []string {
	var found []string
	for _, a := range actions {
		is := a.Attachment.ContainerID
		if is == id {
			return []string{id}
		}
		if (strings.HasPrefix(is, id) || a.Pod.Name != "" && a.Pod.String() == id) && !slices.Contains(found, is) {
			found = append(found, is)
		}
	}
	return found
}

package adopt

import (
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// choose returns the actions on what is selected. selection.ErrNothing and selection.ErrAmbiguous can be
// matched.
func choose(actions []Action, by selection.Selection) ([]Action, error) {
	if by.All() {
		return actions, nil
	}
	things := make([]selection.Thing, len(actions))
	for i, a := range actions {
		things[i] = selection.Thing{
			Pod: a.Pod, ContainerID: a.Attachment.ContainerID, Network: a.Attachment.Network,
			Parents: netstate.ChainNames(a.Interface.Parents),
		}
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, err
	}
	var some []Action
	for i, a := range actions {
		if chosen[i] {
			some = append(some, a)
		}
	}
	return some, nil
}

// Thing is how the interface is selected. If no cache and no checkpoint knows the sandbox, its pod is empty and
// its container ID is made from the namespace. Then --namespace does not choose it: it would be reported under
// every namespace, although it may be no pod's.
func (f Found) Thing() selection.Thing {
	return selection.Thing{
		Pod: f.Pod, ContainerID: f.Attachment.ContainerID, Network: f.Attachment.Network,
		Parents: netstate.ChainNames(f.Live.Parents),
	}
}

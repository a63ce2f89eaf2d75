package adopt

import (
	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// choose returns the actions on what is selected, and the problems with it. things has a thing for each action, then
// one for each problem. It can have more things that a name may be of.
// selection.ErrNothing and selection.ErrAmbiguous can be matched.
func choose(actions []Action, problems []Problem, things []selection.Thing, by selection.Selection) ([]Action, []Problem, error) {
	if by.All() {
		return actions, problems, nil
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, nil, err
	}
	return those(actions, chosen), those(problems, chosen[len(actions):]), nil
}

// things returns how the actions, and then the problems of the look, are selected.
func (r *run) things(actions []Action) []selection.Thing {
	return thingsOf(actions, r.problems, restore.NewNaming(r.look.devices, r.node.Records, r.node.Unreadable))
}

func thingsOf(actions []Action, problems []Problem, naming *restore.Naming) []selection.Thing {
	things := make([]selection.Thing, 0, len(actions)+len(problems))
	for _, a := range actions {
		things = append(things, a.thing(naming))
	}
	for _, p := range problems {
		things = append(things, p.Thing())
	}
	return things
}

// thing has the parents that the interface is on, and those that its checkpoint has.
func (a Action) thing(naming *restore.Naming) selection.Thing {
	t := selection.Thing{
		Pod: a.Pod, ContainerID: a.Attachment.ContainerID, Network: a.Attachment.Network,
		Parents: netstate.ChainNames(a.on), Unknown: a.torn != nil,
	}
	if a.was != nil {
		t.Parents = append(t.Parents, naming.Of(*a.was)...)
	}
	if t.Unknown && t.Network == checkpoint.NetworkUnknown {
		t.Network = ""
	}
	return t
}

// those returns what is chosen of the list.
func those[T any](list []T, chosen []bool) (some []T) {
	for i, one := range list {
		if chosen[i] {
			some = append(some, one)
		}
	}
	return some
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

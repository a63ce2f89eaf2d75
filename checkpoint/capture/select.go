package capture

import (
	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// selectActions returns the actions on what is selected, and the problems with it. candidates has a thing for each action, then
// one for each problem. It can have more things that a name may be of.
// selection.ErrNothing and selection.ErrAmbiguous can be matched.
func selectActions(actions []InterfaceAction, problems []InspectionProblem, things []selection.Candidate, sel selection.Selection) ([]InterfaceAction, []InspectionProblem, error) {
	if sel.MatchesAll() {
		return actions, problems, nil
	}
	chosen, err := sel.Choose(things)
	if err != nil {
		return nil, nil, err
	}
	return selection.Keep(actions, chosen), selection.Keep(problems, chosen[len(actions):]), nil
}

// candidates returns how the actions, and then the problems of the look, are selected.
func (r *captureRun) candidates(actions []InterfaceAction) []selection.Candidate {
	return candidatesOf(actions, r.problems, restore.NewNaming(r.inspector.hostDevices, r.node.Records, r.node.Unreadable))
}

func candidatesOf(actions []InterfaceAction, problems []InspectionProblem, naming *restore.Naming) []selection.Candidate {
	things := make([]selection.Candidate, 0, len(actions)+len(problems))
	for _, a := range actions {
		things = append(things, a.candidate(naming))
	}
	for _, p := range problems {
		things = append(things, p.Candidate())
	}
	return things
}

// candidate has the parents that the interface is on, and those that its checkpoint has.
func (a InterfaceAction) candidate(naming *restore.Naming) selection.Candidate {
	t := selection.Candidate{
		Pod: a.Pod, ContainerID: a.Attachment.ContainerID, Network: a.Attachment.Network,
		Parents: netstate.ChainNames(a.parents), Unknown: a.torn != nil,
	}
	if a.recordedInterface != nil {
		t.Parents = append(t.Parents, naming.Names(*a.recordedInterface)...)
	}
	if t.Unknown && t.Network == checkpoint.NetworkUnknown {
		t.Network = ""
	}
	return t
}

// Candidate is how the interface is selected. If no cache and no checkpoint knows the sandbox, its pod is empty and
// its container ID is made from the namespace. Then --namespace does not choose it: it would be reported under
// every namespace, although it may be no pod's.
func (f LiveInterface) Candidate() selection.Candidate {
	return selection.Candidate{
		Pod: f.Pod, ContainerID: f.Attachment.ContainerID, Network: f.Attachment.Network,
		Parents: netstate.ChainNames(f.Live.Parents),
	}
}

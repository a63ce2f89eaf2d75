package capture

import (
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

// InspectionProblem is a sandbox, or an interface in it, that could not be looked at.
type InspectionProblem struct {
	Identity
	Namespace attachment.Namespace
	// Text says what is wrong, on one line.
	Text string
}

// Candidate is how the problem is selected. Its parents are not known, so that --parent does not choose it. What
// belongs to no known pod counts only without a selection, or under its container ID.
func (p InspectionProblem) Candidate() selection.Candidate {
	return selection.Candidate{Pod: p.Pod, ContainerID: p.Attachment.ContainerID, Network: p.Attachment.Network}
}

// problem says whose the problem is: that of an interface, or of the whole sandbox if ifName is empty.
func (l *inspector) problem(namespace attachment.Namespace, ifName string, err error) InspectionProblem {
	owner := identify(namespace, netstate.Link{Name: ifName}, l.cache).withRecords(namespace, l.records.records[namespace.File()])
	return InspectionProblem{Identity: owner, Namespace: namespace, Text: printable.Joined(err)}
}

func problemLines(problems []InspectionProblem) (lines []string) {
	for _, p := range problems {
		lines = append(lines, p.Text)
	}
	return lines
}

package adopt

import (
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

// Problem is a sandbox, or an interface in it, that could not be looked at.
type Problem struct {
	Owner
	Namespace attachment.Namespace
	// Text says what is wrong, on one line.
	Text string
}

// Thing is how the problem is selected. Its parents are not known, so that --parent does not choose it. What
// belongs to no known pod counts only without a selection, or under its container ID.
func (p Problem) Thing() selection.Thing {
	return selection.Thing{Pod: p.Pod, ContainerID: p.Attachment.ContainerID, Network: p.Attachment.Network}
}

// problem says whose the problem is: that of an interface, or of the whole sandbox if ifName is empty.
func (l *look) problem(namespace attachment.Namespace, ifName string, err error) Problem {
	owner := ownerOf(namespace, netstate.Link{Name: ifName}, l.cache).byNeighbours(namespace, l.records.records[fileOf(namespace)])
	return Problem{Owner: owner, Namespace: namespace, Text: printable.Joined(err)}
}

func texts(problems []Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Text)
	}
	return all
}

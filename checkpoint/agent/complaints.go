package agent

import (
	"maps"
	"regexp"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

const (
	// complaintAgain is how long a complaint that was logged is not logged again.
	complaintAgain = 10 * time.Minute
	// mostComplaints is how many are told apart. Further ones are not logged for that time: the log has enough to wake somebody.
	mostComplaints = 1000
)

// complaints are what was logged about sandboxes, and when. A full disk gives an error for each sandbox several times per second.
type complaints map[complaint]time.Time

type complaint struct {
	namespace attachment.Namespace
	// kind is the error without its numbers. The names of temporary files have some.
	kind string
}

var numbers = regexp.MustCompile(`[0-9]+`)

// isNew says that the error is to be logged now, and notes that it is.
func (c complaints) isNew(namespace attachment.Namespace, text string, now time.Time) bool {
	is := complaint{namespace: namespace, kind: numbers.ReplaceAllString(text, "N")}
	if at, said := c[is]; said && now.Sub(at) < complaintAgain {
		return false
	}
	if len(c) >= mostComplaints {
		maps.DeleteFunc(c, func(_ complaint, at time.Time) bool { return now.Sub(at) >= complaintAgain })
	}
	if len(c) >= mostComplaints {
		return false
	}
	c[is] = now
	return true
}

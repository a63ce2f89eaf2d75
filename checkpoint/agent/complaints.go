package agent

import (
	"maps"
	"regexp"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

const (
	// complaintAgain is the least time between two log lines for the same complaint.
	complaintAgain = 10 * time.Minute
	// mostComplaints is how many complaints are kept. More than that are not logged during complaintAgain: the log has
	// enough lines to alert somebody.
	mostComplaints = 1000
)

// complaints says which complaints about sandboxes were logged, and when. A full disk gives an error for each sandbox
// several times per second.
type complaints map[complaint]time.Time

type complaint struct {
	namespace attachment.Namespace
	// kind is the error without its numbers, because the names of temporary files have random numbers.
	kind string
}

var numbers = regexp.MustCompile(`[0-9]+`)

// isNew says whether to log the error now, and notes that it is logged.
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

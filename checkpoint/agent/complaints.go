package agent

import (
	"maps"
	"regexp"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

const (
	// complaintInterval is the least time between two log lines for the same complaint.
	complaintInterval = 10 * time.Minute
	// maxComplaints is how many complaints are kept. More than that are not logged during complaintInterval: the log has
	// enough lines to alert somebody.
	maxComplaints = 1000
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
func (c complaints) isNew(namespace attachment.Namespace, text string, instant time.Time) bool {
	key := complaint{namespace: namespace, kind: numbers.ReplaceAllString(text, "N")}
	if logged, ok := c[key]; ok && instant.Sub(logged) < complaintInterval {
		return false
	}
	if len(c) >= maxComplaints {
		maps.DeleteFunc(c, func(_ complaint, logged time.Time) bool { return instant.Sub(logged) >= complaintInterval })
	}
	if len(c) >= maxComplaints {
		return false
	}
	c[key] = instant
	return true
}

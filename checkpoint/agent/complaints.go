package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// complaintInterval is the least time between two log lines for the same complaint.
	complaintInterval = 10 * time.Minute
	// maxComplaints is how many complaints are kept. More than that are not logged during complaintInterval: the log has
	// enough lines to alert somebody.
	maxComplaints = 1000
)

// complaints says which complaints were logged, and when. A full disk gives an error for each sandbox several times per second.
// Several goroutines complain.
type complaints struct {
	log    *slog.Logger
	mu     sync.Mutex
	logged map[string]time.Time
}

var numbers = regexp.MustCompile(`[0-9]+`)

// warn logs the error, unless it was logged a short time ago.
func (c *complaints) warn(message string, err error, instant time.Time, args ...any) {
	text := printable.Joined(err)
	key := fmt.Sprint(message, numbers.ReplaceAllString(text, "N"), args) // The names of temporary files have random numbers.
	c.mu.Lock()
	defer c.mu.Unlock()
	if logged, ok := c.logged[key]; ok && instant.Sub(logged) < complaintInterval {
		return
	}
	if len(c.logged) >= maxComplaints {
		maps.DeleteFunc(c.logged, func(_ string, logged time.Time) bool { return instant.Sub(logged) >= complaintInterval })
	}
	if len(c.logged) < maxComplaints {
		c.logged[key] = instant
		c.log.Warn(message, append(args, "error", text)...)
	}
}

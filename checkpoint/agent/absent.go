package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
)

// absence is a search for a sandbox that found nothing.
type absence struct {
	// searchedAt is the time of the search. namespace is what was searched for.
	searchedAt time.Time
	namespace  attachment.Namespace
}

// noteAbsent notes which sandboxes the restore did not find.
func (a *Agent) noteAbsent(e restoreEnd, instant time.Time) {
	for _, r := range e.records {
		if slices.Contains(e.result.Absent, r.Attachment) {
			a.absent[r.Attachment] = absence{searchedAt: instant, namespace: r.Namespace}
		}
	}
}

// withoutAbsent leaves out the records whose sandboxes were not found. It forgets an attachment that has no record any
// more, or whose record now names another sandbox.
func (a *Agent) withoutAbsent(records []checkpoint.Record) (living []checkpoint.Record) {
	unchanged := map[attachment.Key]bool{}
	for _, r := range records {
		if absent, ok := a.absent[r.Attachment]; ok && absent.namespace == r.Namespace {
			unchanged[r.Attachment] = true
			continue
		}
		living = append(living, r)
	}
	maps.DeleteFunc(a.absent, func(key attachment.Key, _ absence) bool { return !unchanged[key] })
	return living
}

// expireAbsent forgets the sandboxes whose last search is some time ago, so that they are searched for again.
// found says whether there are any.
func (a *Agent) expireAbsent(instant time.Time) (found bool) {
	for key, absent := range a.absent {
		if instant.Sub(absent.searchedAt) >= absentInterval {
			delete(a.absent, key)
			found = true
		}
	}
	return found
}

package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// surveyLimit bounds the survey of the node's sandboxes.
const surveyLimit = 15 * time.Second

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
	recorded, unchanged := map[attachment.Key]bool{}, map[attachment.Key]bool{}
	for _, r := range records {
		recorded[r.Attachment] = true
		if absent, ok := a.absent[r.Attachment]; ok && absent.namespace == r.Namespace {
			unchanged[r.Attachment] = true
			continue
		}
		living = append(living, r)
	}
	maps.DeleteFunc(a.absent, func(key attachment.Key, _ absence) bool { return !unchanged[key] })
	maps.DeleteFunc(a.surveyed, func(key attachment.Key, _ bool) bool { return !recorded[key] })
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

// surveyAbsent asks the container runtime about sandboxes that were not found, once about each. Nothing waits for the
// answer: only people read it.
func (a *Agent) surveyAbsent(absent []attachment.Key) {
	ids := map[string]bool{}
	for _, key := range absent {
		if !a.surveyed[key] {
			ids[key.ContainerID] = true
		}
		a.surveyed[key] = true
	}
	if a.Runtime == nil || len(ids) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), surveyLimit)
		defer cancel()
		survey, err := sandbox.NewSurvey(ctx, a.Runtime, cnicache.DefaultDir)
		if err != nil {
			a.Log.Warn("the agent cannot list the node's sandboxes", "error", printable.Joined(err))
			return
		}
		for _, entry := range absentRemarks(survey, ids) {
			a.Log.Warn(entry.text, "sandboxes", strings.Join(entry.ids, " "), "hint", entry.hint)
		}
	}()
}

// remark is a line for the log about sandboxes that were not found.
type remark struct {
	text, hint string
	ids        []string
}

// absentRemarks is a pure function. No sandbox with these IDs was found at its path. absentRemarks says what the survey
// tells about them. It says nothing about pods that ended in the usual way.
func absentRemarks(survey sandbox.Survey, ids map[string]bool) (remarks []remark) {
	hidden := remark{text: "the container runtime runs sandboxes that the agent cannot find", hint: "are /run/netns, /var/run/netns and /proc those of the node?"}
	for _, s := range survey.Absent {
		if ids[s.ContainerID] && s.Ready {
			hidden.ids = append(hidden.ids, s.ContainerID)
		}
	}
	moved := remark{text: "sandboxes run, but in other namespaces than recorded", hint: "relink check says more"}
	for _, s := range survey.Sandboxes {
		if ids[s.ContainerID] && s.Ready {
			moved.ids = append(moved.ids, s.ContainerID)
		}
	}
	for _, r := range []remark{hidden, moved} {
		if len(r.ids) > 0 {
			remarks = append(remarks, r)
		}
	}
	if !survey.Complete() {
		remarks = append(remarks, remark{
			text: "some sandboxes were not found, and the agent does not know whether their pods have ended", hint: printable.Joined(survey.Incomplete),
		})
	}
	return remarks
}

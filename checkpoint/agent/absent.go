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
	// at is the time of the search. namespace is what was searched for.
	at        time.Time
	namespace attachment.Namespace
}

// noteAbsent notes which sandboxes the restore did not find.
func (a *Agent) noteAbsent(e ended, now time.Time) {
	for _, r := range e.records {
		if slices.Contains(e.result.Absent, r.Attachment) {
			a.absent[r.Attachment] = absence{at: now, namespace: r.Namespace}
		}
	}
}

// withoutAbsent leaves out the records whose sandboxes were not found. It forgets an attachment that has no record any
// more, or whose record now names another sandbox.
func (a *Agent) withoutAbsent(records []checkpoint.Record) (living []checkpoint.Record) {
	recorded, still := map[attachment.Key]bool{}, map[attachment.Key]bool{}
	for _, r := range records {
		recorded[r.Attachment] = true
		if absent, is := a.absent[r.Attachment]; is && absent.namespace == r.Namespace {
			still[r.Attachment] = true
			continue
		}
		living = append(living, r)
	}
	maps.DeleteFunc(a.absent, func(key attachment.Key, _ absence) bool { return !still[key] })
	maps.DeleteFunc(a.asked, func(key attachment.Key, _ bool) bool { return !recorded[key] })
	return living
}

// lookAgainForAbsent forgets the sandboxes whose last search is some time ago, so that they are searched for again.
// some says whether there are any.
func (a *Agent) lookAgainForAbsent(now time.Time) (some bool) {
	for key, absent := range a.absent {
		if now.Sub(absent.at) >= absentRound {
			delete(a.absent, key)
			some = true
		}
	}
	return some
}

// askAbout asks the container runtime about sandboxes that were not found, once about each. Nothing waits for the
// answer: only people read it.
func (a *Agent) askAbout(absent []attachment.Key) {
	ids := map[string]bool{}
	for _, key := range absent {
		if !a.asked[key] {
			ids[key.ContainerID] = true
		}
		a.asked[key] = true
	}
	if a.Runtime == nil || len(ids) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), surveyLimit)
		defer cancel()
		survey, err := sandbox.Look(ctx, a.Runtime, cnicache.DefaultDir)
		if err != nil {
			a.Log.Warn("the agent cannot list the node's sandboxes", "error", printable.Joined(err))
			return
		}
		for _, said := range aboutAbsent(survey, ids) {
			a.Log.Warn(said.text, "sandboxes", strings.Join(said.ids, " "), "hint", said.hint)
		}
	}()
}

// remark is a line for the log about sandboxes that were not found.
type remark struct {
	text, hint string
	ids        []string
}

// aboutAbsent is a pure function. No sandbox with these IDs was found at its path. aboutAbsent says what the survey
// tells about them. It says nothing about pods that ended in the usual way.
func aboutAbsent(survey sandbox.Survey, ids map[string]bool) (remarks []remark) {
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

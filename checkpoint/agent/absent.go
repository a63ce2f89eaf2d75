package agent

import (
	"context"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// surveyLimit bounds the survey of the node's sandboxes.
const surveyLimit = 15 * time.Second

// askAbout asks the container runtime about sandboxes that were not found, once about each. Nothing waits for the answer: it
// is for people.
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
			a.Log.Warn("the node's sandboxes cannot be listed", "error", printable.Joined(err))
			return
		}
		for _, said := range aboutAbsent(survey, ids) {
			a.Log.Warn(said.text, "sandboxes", strings.Join(said.ids, " "), "hint", said.hint)
		}
	}()
}

// remark is what is to be said of sandboxes that were not found.
type remark struct {
	text, hint string
	ids        []string
}

// aboutAbsent is a pure function: it says what the survey tells of the sandboxes with these IDs, none of which was found at
// its path. It says nothing of pods that have ended, as pods do.
func aboutAbsent(survey sandbox.Survey, ids map[string]bool) (remarks []remark) {
	hidden := remark{text: "the container runtime keeps sandboxes running that cannot be found from here", hint: "are /run/netns and /proc those of the node?"}
	for _, s := range survey.Absent {
		if ids[s.ContainerID] && s.Ready {
			hidden.ids = append(hidden.ids, s.ContainerID)
		}
	}
	moved := remark{text: "sandboxes run, but not in the recorded namespaces", hint: "relink check says more"}
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
			text: "some sandboxes were not found, and whether their pods have ended is not known", hint: printable.Joined(survey.Incomplete),
		})
	}
	return remarks
}

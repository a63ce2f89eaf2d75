package agent

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/sandbox"
)

func TestAboutAbsent(t *testing.T) {
	ready, stopped := sandbox.RuntimeSandbox{ContainerID: "c1", Ready: true}, sandbox.RuntimeSandbox{ContainerID: "c1"}
	known := func(id string, ready bool) sandbox.NodeSandbox {
		return sandbox.NodeSandbox{Source: sandbox.SourceRuntime, ContainerID: id, Ready: ready}
	}
	for name, test := range map[string]struct {
		survey sandbox.Survey
		want   []string
	}{
		"the pod has ended":             {sandbox.Survey{}, nil},
		"its sandbox has stopped":       {sandbox.Survey{Absent: []sandbox.RuntimeSandbox{stopped}}, nil},
		"it cannot be seen from here":   {sandbox.Survey{Absent: []sandbox.RuntimeSandbox{ready}}, []string{"the container runtime runs sandboxes that the agent cannot find: [c1]"}},
		"it is in another namespace":    {sandbox.Survey{Sandboxes: []sandbox.NodeSandbox{known("c1", true)}}, []string{"sandboxes run, but in other namespaces than recorded: [c1]"}},
		"only others are in the survey": {sandbox.Survey{Sandboxes: []sandbox.NodeSandbox{known("c2", true)}, Absent: []sandbox.RuntimeSandbox{{ContainerID: "c3", Ready: true}}}, nil},
		"nobody can be asked":           {sandbox.Survey{Incomplete: errors.New("no runtime")}, []string{"some sandboxes were not found, and the agent does not know whether their pods have ended: []"}},
		"stopped, in a reused network":  {sandbox.Survey{Sandboxes: []sandbox.NodeSandbox{known("c1", false)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range absentRemarks(test.survey, map[string]bool{"c1": true}) {
				got = append(got, fmt.Sprintf("%s: %v", r.text, r.ids))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("aboutAbsent() (-want +got):\n%s", diff)
			}
		})
	}
}

// The agent searches later for a sandbox that it did not find. If the attachment gets a record in another sandbox, the
// agent does not wait with that record.
func TestAbsentUntilRecordedAnew(t *testing.T) {
	was, other := attachment.Namespace{Path: "/run/netns/a", Inode: 1}, attachment.Namespace{Path: "/run/netns/b", Inode: 2}
	record := func(id string, at attachment.Namespace) checkpoint.Record {
		return checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, Namespace: at}
	}
	gone, anew, found := record("c1", was), record("c2", was), record("c3", was)
	a := &Agent{absent: map[attachment.Key]absence{}, surveyed: map[attachment.Key]bool{gone.Attachment: true, anew.Attachment: true}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a.noteAbsent(restoreEnd{records: []checkpoint.Record{gone, anew, found}, result: &restore.Result{Absent: []attachment.Key{gone.Attachment, anew.Attachment}}}, now)
	ids := func(records []checkpoint.Record) (ids []string) {
		for _, r := range a.withoutAbsent(records) {
			ids = append(ids, r.Attachment.ContainerID)
		}
		return ids
	}
	if got := ids([]checkpoint.Record{gone, record("c2", other), found}); !slices.Equal(got, []string{"c2", "c3"}) {
		t.Errorf("%v are looked at", got)
	}
	if a.expireAbsent(now.Add(absentInterval-1)) || !a.expireAbsent(now.Add(absentInterval)) {
		t.Error("the agent does not search again when it is time")
	}
	if ids(nil); len(a.absent)+len(a.surveyed) != 0 {
		t.Errorf("the agent remembers forgotten attachments: %v, %v", a.absent, a.surveyed)
	}
}

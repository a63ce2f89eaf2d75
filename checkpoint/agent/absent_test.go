package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// The agent searches later for a sandbox that it did not find. If the attachment gets a record in another sandbox, the
// agent does not wait with that record.
func TestAbsentUntilRecordedAnew(t *testing.T) {
	was, other := attachment.Namespace{Path: "/run/netns/a", Inode: 1}, attachment.Namespace{Path: "/run/netns/b", Inode: 2}
	record := func(id string, at attachment.Namespace) checkpoint.Record {
		return checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, Namespace: at}
	}
	gone, anew, found := record("c1", was), record("c2", was), record("c3", was)
	a := &Agent{absent: map[attachment.Key]absence{}}
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
	if ids(nil); len(a.absent) != 0 {
		t.Errorf("the agent remembers forgotten attachments: %v", a.absent)
	}
}

package agent

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

func TestComplaints(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := complaints{}
	for _, test := range []struct {
		inode uint64
		text  string
		after time.Duration
		want  bool
	}{
		{1, "open /run/c1/.eth0.json12: read-only", 0, true},
		{1, "open /run/c1/.eth0.json977: read-only", time.Second, false},
		{2, "open /run/c2/.eth0.json3: read-only", time.Second, true},
		{1, "no space left on device", 2 * time.Second, true},
		{1, "open /run/c1/.eth0.json5: read-only", 3 * time.Second, false},
		{1, "open /run/c1/.eth0.json5: read-only", complaintInterval, true},
	} {
		if got := c.isNew(attachment.Namespace{Inode: test.inode}, test.text, start.Add(test.after)); got != test.want {
			t.Errorf("%d, %q after %s: %v", test.inode, test.text, test.after, got)
		}
	}
	later := start.Add(time.Hour)
	logged := 0
	for i := range uint64(3 * maxComplaints) {
		if c.isNew(attachment.Namespace{Inode: i}, "full", later) {
			logged++
		}
	}
	if logged != maxComplaints || len(c) != maxComplaints {
		t.Errorf("%d are logged and %d kept", logged, len(c))
	}
}

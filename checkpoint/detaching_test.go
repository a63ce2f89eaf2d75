package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
)

func TestDetaching(t *testing.T) {
	s := OpenStore(t.TempDir())
	a, b := attachment.Namespace{Inode: 1, Cookie: 7}, attachment.Namespace{Inode: 1, Cookie: 8}
	if s.Detaching(a, "eth0") {
		t.Error("before")
	}
	begin := func(n attachment.Namespace) {
		t.Helper()
		if err := s.BeginDetach(n, "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	begin(a)
	if !s.Detaching(a, "eth0") || s.Detaching(b, "eth0") || s.Detaching(a, "eth1") {
		t.Error("it is that interface of that namespace")
	}
	s.EndDetach(a, "eth0")
	if s.Detaching(a, "eth0") {
		t.Error("after it was attached again")
	}
	begin(a)
	uptime, err := boot.Uptime()
	if err != nil {
		t.Fatal(err)
	}
	for what, written := range map[string]time.Duration{"out of date": uptime - detachLimit - time.Second, "of an earlier boot": uptime + time.Hour} {
		if err := os.Chtimes(s.detachNote(a, "eth0"), time.Time{}, time.Unix(0, int64(written))); err != nil {
			t.Fatal(err)
		}
		if s.Detaching(a, "eth0") {
			t.Errorf("it is %s", what)
		}
	}
	begin(b)
	if notes, err := os.ReadDir(filepath.Join(s.dir, detachingDir)); err != nil || len(notes) != 1 {
		t.Errorf("notes are left: %v %v", notes, err)
	}
	if records, unreadable, err := s.List(); err != nil || len(records)+len(unreadable) > 0 {
		t.Error(records, unreadable, err)
	}
}

package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestForeign(t *testing.T) {
	s := populated(t)
	end, err := s.BeginGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	unlock, err := s.Lock(t.Context(), "aaaa1111")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	shared, err := s.ShareParents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Release()
	if err := s.SaveMoving(Moving{Attachment: record("aaaa1111", "eth0").Attachment}); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveLastRestore(LastRestore{}); err != nil {
		t.Fatal(err)
	}
	write(t, s, ".agent/pause.json", "{}")
	if all, err := s.Foreign(); err != nil || len(all) > 0 {
		t.Errorf("relink's own: %v, %v", all, err)
	}
	var want []string
	for _, name := range []string{".bashrc", ".ssh/key", "aaaa1111/notes", "aaaa1111/sub/x", "passwd"} {
		write(t, s, name, "")
		want = append(want, filepath.Join(s.Dir(), name))
	}
	want[1], want[3] = filepath.Dir(want[1]), filepath.Dir(want[3])
	if all, err := s.Foreign(); err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v, want %v", all, err, want)
	}
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Foreign(); err != nil || len(all) > 0 {
		t.Errorf("nothing is there: %v, %v", all, err)
	}
}

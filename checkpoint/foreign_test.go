package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every name that relink keeps beside the sandboxes is in the documentation, and no other one with a dot.
func TestOwnNamesAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/state-format.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if row, ok := strings.CutPrefix(line, "| `<dir>/."); ok {
			name, _, _ := strings.Cut(row, "`")
			name, _, _ = strings.Cut(name, "/")
			documented["."+name] = true
		}
	}
	own := slices.Sorted(slices.Values(append([]string{probePrefix + "*"}, reservedNames...)))
	if got := slices.Sorted(maps.Keys(documented)); !slices.Equal(got, own) {
		t.Errorf("documented are %q, own are %q", got, own)
	}
}

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
	shared, err := s.LockParents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Release()
	if err := s.SaveMove(Move{Attachment: record("aaaa1111", "eth0").Attachment}); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveLastRestore(LastRestore{}); err != nil {
		t.Fatal(err)
	}
	write(t, s, ".agent/pause.json", "{}")
	if all, err := s.UnexpectedPaths(); err != nil || len(all) > 0 {
		t.Errorf("relink's own: %v, %v", all, err)
	}
	var want []string
	for _, name := range []string{".bashrc", ".ssh/key", "aaaa1111/notes", "aaaa1111/sub/x", "passwd"} {
		write(t, s, name, "")
		want = append(want, filepath.Join(s.Dir(), name))
	}
	want[1], want[3] = filepath.Dir(want[1]), filepath.Dir(want[3])
	if all, err := s.UnexpectedPaths(); err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v, want %v", all, err, want)
	}
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	if all, err := s.UnexpectedPaths(); err != nil || len(all) > 0 {
		t.Errorf("nothing is there: %v, %v", all, err)
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/guard"
	thisboot "github.com/relink-cni/relink/pkg/boot"
)

// Without relink nobody could finish the work of a guard that was killed.
func TestUninstallLeavesAGuardAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(guard.DirEnv, dir)
	id, err := thisboot.ID()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ journal, want string }{
		{"", "<nil>"},
		{`{"version": 1, "bootID": "` + id + `"}`, "nothing is taken away: relink guard was killed: relink guard --resume finishes its work"},
		{`{"version": 1, "bootID": "` + id + `", "finished": "2026-03-01T11:00:00Z"}`, "<nil>"},
		{`{"version": 1, "bootID": "of an earlier boot"}`, "<nil>"},
		{`{"vers`, "guard's journal"},
	} {
		if test.journal != "" {
			if err := os.WriteFile(filepath.Join(dir, "journal.json"), []byte(test.journal), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(checkNoGuard()); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", test.journal, got, test.want)
		}
	}
}

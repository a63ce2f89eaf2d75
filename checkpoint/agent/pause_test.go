package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
)

// A pause that an earlier agent noted keeps its length. It does not last longer if somebody sets the date back.
func TestNotedPause(t *testing.T) {
	noted := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		length, now time.Duration // now is that of the start, since the note
		lasts       time.Duration // since the start, 0 for no pause, -1 until a resume
	}{
		"some time later":    {10 * time.Minute, 4 * time.Minute, 6 * time.Minute},
		"it is over":         {10 * time.Minute, 10 * time.Minute, 0},
		"set back by a year": {10 * time.Minute, -365 * 24 * time.Hour, 10 * time.Minute},
		"without an end":     {0, -time.Hour, -1},
	} {
		path, p := filepath.Join(t.TempDir(), "pause.json"), control.Pause{Since: noted}
		if test.length > 0 {
			p.Until = noted.Add(test.length)
		}
		if err := savePause(path, p); err != nil {
			t.Fatal(err)
		}
		now := noted.Add(test.now)
		is, err := loadPause(path, now)
		lasts := time.Duration(0)
		switch {
		case err != nil:
			t.Error(err)
		case is != nil && is.Until.IsZero():
			lasts = -1
		case is != nil:
			lasts = is.Until.Sub(now)
		}
		if lasts != test.lasts {
			t.Errorf("%s: the pause lasts %s, want %s", name, lasts, test.lasts)
		}
	}
}

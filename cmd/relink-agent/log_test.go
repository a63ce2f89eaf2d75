package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	for _, test := range []struct{ journal, want string }{
		{"8:1", "<6>msg=hello pod=\"a b\"\n<4>msg=careful\n<3>msg=bad\n"},
		{"", "level=INFO msg=hello pod=\"a b\"\nlevel=WARN msg=careful\nlevel=ERROR msg=bad\n"},
	} {
		t.Setenv("JOURNAL_STREAM", test.journal)
		var out bytes.Buffer
		log := newLogger(&out, slog.LevelInfo)
		log.Debug("not logged")
		log.Info("hello", "pod", "a b")
		log.Warn("careful")
		log.Error("bad")
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "time=") {
				_, line, _ = strings.Cut(line, " ")
			}
			got.WriteString(line)
		}
		if got.String() != test.want || strings.Contains(out.String(), "time=") == (test.journal != "") {
			t.Errorf("JOURNAL_STREAM=%q: %q, want %q", test.journal, out.String(), test.want)
		}
	}
}

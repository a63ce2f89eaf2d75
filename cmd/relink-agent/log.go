package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
)

// newLogger returns a logger that writes a line for each event. For the journal, each line has its priority
// (sd-daemon(3)) and no time: the journal adds the time.
func newLogger(out io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opts.ReplaceAttr = dropTime
		out = journal{out}
	}
	return slog.New(slog.NewTextHandler(out, opts))
}

func dropTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// journal turns the level at the beginning of a line into the priority that journald reads.
type journal struct{ out io.Writer }

// priorities are those of syslog(3).
var priorities = []struct{ level, priority string }{
	{"level=DEBUG ", "<7>"}, {"level=INFO ", "<6>"}, {"level=WARN ", "<4>"}, {"level=ERROR ", "<3>"},
}

// Write gets exactly one line: a slog.TextHandler writes each record in one call.
func (j journal) Write(line []byte) (int, error) {
	for _, p := range priorities {
		if rest, ok := bytes.CutPrefix(line, []byte(p.level)); ok {
			if _, err := j.out.Write(append([]byte(p.priority), rest...)); err != nil {
				return 0, err
			}
			return len(line), nil
		}
	}
	return j.out.Write(line)
}

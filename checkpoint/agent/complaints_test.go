package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"
)

func TestComplaints(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	c := complaints{log: slog.New(slog.NewTextHandler(&log, nil)), logged: map[string]time.Time{}}
	warns := func(namespace int, text string, instant time.Time) bool {
		log.Reset()
		c.warn("a checkpoint is not kept fresh", errors.New(text), instant, "namespace", namespace)
		return log.Len() > 0
	}
	for _, test := range []struct {
		namespace int
		text      string
		after     time.Duration
		want      bool
	}{
		{1, "open /run/c1/.eth0.json12: read-only", 0, true},
		{1, "open /run/c1/.eth0.json977: read-only", time.Second, false},
		{2, "open /run/c2/.eth0.json3: read-only", time.Second, true},
		{1, "no space left on device", 2 * time.Second, true},
		{1, "open /run/c1/.eth0.json5: read-only", 3 * time.Second, false},
		{1, "open /run/c1/.eth0.json5: read-only", complaintInterval, true},
	} {
		if got := warns(test.namespace, test.text, start.Add(test.after)); got != test.want {
			t.Errorf("%d, %q after %s: %v", test.namespace, test.text, test.after, got)
		}
	}
	later := start.Add(time.Hour)
	logged := 0
	for i := range 3 * maxComplaints {
		if warns(i, "full", later) {
			logged++
		}
	}
	if logged != maxComplaints || len(c.logged) != maxComplaints {
		t.Errorf("%d are logged and %d kept", logged, len(c.logged))
	}
}

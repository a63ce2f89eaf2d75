package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

func TestAReportIsSummedUp(t *testing.T) {
	report := Report{Report: change.Report[Outcome]{Duration: 3 * time.Second, Interrupted: true, Problems: list("one", "two")}, WaitDuration: time.Second}
	want := checkpoint.LastRestore{
		Duration: 3 * time.Second, WaitDuration: time.Second, Interrupted: true, Problems: 2,
		Counts: map[string]int{"restored": 1, "sandbox gone": 1, "failed": 25},
	}
	report.Outcomes = []Outcome{{Outcome: change.Outcome{State: Restored, Reason: "it was gone"}}, {Outcome: change.Outcome{State: SandboxGone, Reason: "it is gone"}}}
	for n := range 25 {
		key, in := attachment.Key{ContainerID: fmt.Sprintf("c%d", n), IfName: "eth0"}, attachment.Pod{Namespace: "shop", Name: "web-0"}
		report.Outcomes = append(report.Outcomes, Outcome{Outcome: change.Outcome{Attachment: key, Pod: in, State: change.Failed, Reason: "no"}, ParentReason: "eth1 is down"})
		if n < checkpoint.MaxFailed {
			want.Failed = append(want.Failed, checkpoint.FailedRestore{Attachment: key, Pod: in, Reason: "eth1 is down; no"})
		}
	}
	store := checkpoint.OpenStore(t.TempDir())
	want.StartedAt = time.Now().UTC().Truncate(time.Millisecond)
	saveLastRestore(store, selection.Selection{}, want.StartedAt, &report)
	got, err := store.LastRestore()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// Each restore writes down what it did. A dry run writes nothing.
func TestARestoreIsRemembered(t *testing.T) {
	l := newLAN(t)
	l.run(t, Options{DryRun: true})
	if last, err := l.store.LastRestore(); !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		t.Errorf("a dry run: %+v, %v", last, err)
	}
	l.deleteParent(t)
	before := time.Now()
	report, _ := l.run(t, Options{Select: selection.Selection{Names: []string{"shop/web-0"}}})
	last := must(l.store.LastRestore())(t)
	if last.StartedAt.Before(before.Add(-time.Second)) || last.StartedAt.After(time.Now()) {
		t.Errorf("it began at %s", last.StartedAt)
	}
	last.StartedAt = time.Time{}
	want := checkpoint.LastRestore{
		Duration: report.Duration, WaitDuration: report.WaitDuration, Selection: []string{"shop/web-0"}, Counts: map[string]int{"restored": 1}, Problems: 1,
	}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Error(diff)
	}
	l.connect(t)
	l.run(t, Options{})
	if last := must(l.store.LastRestore())(t); last.Counts["as recorded"] != 1 || last.Problems != 0 || last.Selection != nil {
		t.Errorf("the next: %+v", last)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	must(Run(ctx, Options{Store: l.store}))(t)
	if last := must(l.store.LastRestore())(t); !last.Interrupted || last.Counts["not tried"] != 1 || len(last.Failed) > 0 {
		t.Errorf("interrupted: %+v", last)
	}
}

// A restore that cannot write down what it did does not fail.
func TestARestoreThatCannotBeRemembered(t *testing.T) {
	l := newLAN(t)
	if err := os.MkdirAll(filepath.Join(l.store.Dir(), ".restoring", "last.json", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	report, o := l.run(t, Options{})
	if !report.Complete() || o.State != AsRecorded {
		t.Errorf("%+v, problems %q", o, report.Problems)
	}
	if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, "relink status does not know of this restore") {
		t.Errorf("notes %q", notes)
	}
}

package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// Options say how to audit.
type Options struct {
	// Sources opens what an audit reads. Each audit opens it anew: networks come and go.
	Sources func() (audit.Sources, error)
	// Interval is the time between two audits.
	Interval time.Duration
	// Grace is the time between two audits that prove something dead, 0 for gc.DefaultGrace.
	Grace time.Duration
	// OnlyAudit frees nothing.
	OnlyAudit bool
	Log       *slog.Logger
}

// Auditor audits the node.
type Auditor struct {
	Options

	mu sync.Mutex
	// last is the last audit. freed and failed count since the start.
	last          *control.Audit
	freed, failed uint64
	// logged is what was logged last, so that nothing is logged at each audit. Only Run uses it.
	logged string
}

// New returns an Auditor. The caller runs it.
func New(o Options) *Auditor { return &Auditor{Options: o} }

const (
	// firstAudit is the time before the first audit, at most: at a boot the node has other work.
	firstAudit = time.Minute
	// auditTimeout bounds an audit. An API that hangs costs no more.
	auditTimeout = 5 * time.Minute
)

// Run audits until ctx ends.
func (k *Auditor) Run(ctx context.Context) {
	for pause := min(firstAudit, k.Interval); wait.Sleep(ctx, pause); pause = k.Interval {
		k.runOnce(ctx)
	}
}

// Last returns the last audit, nil before the first.
func (k *Auditor) Last() *control.Audit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Counts returns how many things were freed since the start, and how often that failed.
func (k *Auditor) Counts() (freed, failed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.freed, k.failed
}

// heapGrowth is the percentage by which the heap may grow before a collection, during an audit. With the usual 100, an audit of the node takes
// as much memory again as all that the agent keeps.
const heapGrowth = 25

// runOnce makes one audit, and frees.
func (k *Auditor) runOnce(ctx context.Context) {
	defer debug.SetGCPercent(debug.SetGCPercent(heapGrowth))
	bounded, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	began := time.Now()
	sources, err := k.Sources()
	var report gc.PassReport
	if err == nil {
		// The agent's Reconciler keeps the host's part of host access right at each change.
		report, err = gc.Run(bounded, gc.Options{Sources: sources, Grace: k.Grace, DryRun: k.OnlyAudit, OnlyLeases: true, OnlyCheckpoints: true})
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the audit did not end within %s", auditTimeout)
	}
	if ctx.Err() != nil {
		return
	}
	k.recordAudit(summary(report, err, began))
	k.logFreed(report)
}

// summary returns what is told of an audit.
func summary(report gc.PassReport, err error, began time.Time) control.Audit {
	a := control.Audit{
		Time: began.UTC().Truncate(time.Millisecond), Took: time.Since(began), Findings: map[string]int{}, Errors: report.Audit.Errors,
		Freed: report.Count(gc.Freed), Waiting: report.Count(gc.Waiting), Failed: report.Count(change.Failed),
		Problem: strings.Join(report.Problems, "; "),
	}
	for _, kind := range audit.Kinds {
		a.Findings[string(kind)] = report.Audit.Counts[kind]
	}
	for _, f := range report.Audit.Findings {
		if f.Severity == audit.Error {
			a.FirstError = strings.TrimSpace(string(f.Kind) + ": " + f.Pod.String() + " " + f.Attachment.String() + ": " + strings.Join(f.Evidence, "; "))
			break
		}
	}
	if err != nil {
		a.Problem = printable.Joined(err)
	}
	return a
}

// recordAudit keeps the audit, and logs what is new in it.
func (k *Auditor) recordAudit(a control.Audit) {
	k.mu.Lock()
	k.last = &a
	k.freed, k.failed = k.freed+uint64(a.Freed), k.failed+uint64(a.Failed)
	k.mu.Unlock()
	text := a.FirstError + "\x00" + a.Problem
	if text == k.logged {
		return
	}
	k.logged = text
	switch {
	case a.Errors > 0:
		k.Log.Warn("an audit has found errors: relink audit names them", "errors", a.Errors, "first", a.FirstError)
	case a.Problem == "":
		k.Log.Info("an audit has found no error")
	}
	if a.Problem != "" {
		k.Log.Warn("an audit could not look at everything: what it did not see is kept", "problem", a.Problem)
	}
}

// logFreed logs each thing that was freed, and each failure.
func (k *Auditor) logFreed(report gc.PassReport) {
	for _, o := range report.Outcomes {
		args := []any{"attachment", o.Attachment.String(), "pod", o.Pod.String(), "owner", o.Owner.String(), "why", strings.Join(o.Evidence, "; ")}
		if o.Address.IsValid() {
			args = append([]any{"address", o.Address.String()}, args...)
		}
		switch o.State {
		case gc.Freed:
			k.Log.Info("freed: it is proven dead", args...)
		case change.Failed:
			k.Log.Warn("what is proven dead could not be freed", append(args, "error", o.Reason)...)
		}
	}
}

package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// locatedRecords are records, sorted by what became of their namespaces.
type locatedRecords struct {
	// found are the records whose namespace was found. uncertain are the records whose namespace may exist: nobody could
	// look at it, or something keeps it but nobody can enter it.
	found, uncertain []checkpoint.Record
	// outcomes are the outcomes of all records that are not in found.
	outcomes []*Outcome
}

// missingNamespace is a record whose path does not lead to its namespace any more.
type missingNamespace struct {
	record  checkpoint.Record
	outcome *Outcome
	// err says what is at the path.
	err error
}

// locateNamespaces finds the namespaces of the records. It searches elsewhere only for a namespace that is not at its path.
func (r *restoreRun) locateNamespaces(ctx context.Context, records []checkpoint.Record) (l locatedRecords) {
	var missing []missingNamespace
	for _, record := range records {
		err := kernel.CheckNamespace(record.Namespace)
		if err == nil {
			l.found = append(l.found, record)
			continue
		}
		o := outcomeOf(record)
		if kernel.IsMissing(err) {
			missing = append(missing, missingNamespace{record: record, outcome: o, err: err})
			continue
		}
		o.setFailed(err)
		l.outcomes, l.uncertain = append(l.outcomes, o), append(l.uncertain, record)
	}
	if len(missing) == 0 {
		return l
	}
	found, missing := r.findMoved(missing)
	l.found = append(l.found, found...)
	r.proveGone(ctx, missing)
	for _, m := range missing {
		l.outcomes = append(l.outcomes, m.outcome)
		if m.outcome.State != SandboxGone {
			l.uncertain = append(l.uncertain, m.record)
		}
	}
	return l
}

// findMoved searches for the namespaces where relink capture finds sandboxes: at mounts and processes (sandbox.FindPaths).
// It does not find a namespace that only an open file or a socket keeps: its pod may have ended, and another pod may have
// its address by now.
func (r *restoreRun) findMoved(candidates []missingNamespace) (found []checkpoint.Record, missing []missingNamespace) {
	var namespaces []attachment.Namespace
	for _, m := range candidates {
		if namespace := m.record.Namespace; r.movedPaths[namespace] == "" {
			namespaces = append(namespaces, namespace)
		}
	}
	maps.Copy(r.movedPaths, sandbox.FindPaths(namespaces...))
	for _, m := range candidates {
		if r.movedPaths[m.record.Namespace] == "" {
			missing = append(missing, m)
		} else {
			found = append(found, m.record)
		}
	}
	return found, missing
}

// noteMoved reports the sandboxes that are not at their recorded paths any more.
func (r *restoreRun) noteMoved(records []checkpoint.Record) {
	if len(r.movedPaths) == 0 {
		return
	}
	for _, record := range records {
		if path := r.movedPaths[record.Namespace]; path != "" {
			r.notes = appendNew(r.notes, fmt.Sprintf("%s: the sandbox is not at %s any more, but at %s: relink capture --refresh %s records that",
				outcomeOf(record).sandboxName(), record.Namespace.Path, path, record.Attachment.ContainerID))
		}
	}
}

// openNamespace is kernel.OpenSame, which need not search for what this run has found.
func (r *restoreRun) openNamespace(namespace attachment.Namespace) (*kernel.Namespace, error) {
	namespace.Path = cmp.Or(r.movedPaths[namespace], namespace.Path)
	return kernel.OpenSame(namespace)
}

// addVanished notes a record whose namespace went during the run.
func (r *restoreRun) addVanished(m missingNamespace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vanished = append(r.vanished, m)
}

// proofTimeout bounds the search for processes that keep namespaces. The search reads all of /proc.
const proofTimeout = 10 * time.Second

// proveGone finds out whether the sandboxes are gone, and fills in the outcomes. One search serves all of them. A path
// can go while something still lives in the namespace. So a sandbox is SandboxGone only if there is proof.
func (r *restoreRun) proveGone(ctx context.Context, missing []missingNamespace) {
	if len(missing) == 0 {
		return
	}
	if r.unasked {
		for _, m := range missing {
			m.outcome.State, m.outcome.failure, m.outcome.Reason = Failed, namespaceUnproven, m.err.Error()
			r.absent = append(r.absent, m.record.Attachment)
		}
		return
	}
	if ctx.Err() != nil {
		for _, m := range missing {
			m.outcome.setFailed(change.ErrNotTried)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	var namespaces []attachment.Namespace
	for _, m := range missing {
		namespaces = append(namespaces, m.record.Namespace)
	}
	proven := sandbox.Prove(ctx, sandbox.SeesAllProcesses(), namespaces...)
	for _, m := range missing {
		m.setOutcome(proven[m.record.Namespace])
	}
}

// The causes for which nothing is restored in a namespace that is not at its path.
var (
	namespaceKept = causeKey{kind: CauseKept, detail: "the sandboxes are not at their paths any more, but something keeps their network namespaces: " +
		"nothing is restored in them. If the pod is gone: relink forget CONTAINER-ID --force"}
	namespaceUnproven = causeKey{kind: CauseKept, detail: "the sandboxes are not at their paths any more, and nobody knows whether they are gone"}
)

// setOutcome fills in the outcome of the attachment by the evidence.
func (m missingNamespace) setOutcome(evidence sandbox.Evidence) {
	o, namespace := m.outcome, m.record.Namespace
	reason := m.err.Error()
	if !errors.Is(m.err, kernel.ErrNoNamespace) { // That error names the path.
		reason = namespace.Path + ": " + reason
	}
	o.State = Failed
	switch {
	case evidence.Verdict == sandbox.VerdictGone:
		o.State, o.Reason = SandboxGone, "the sandbox is gone: "+reason
	case evidence.Verdict == sandbox.VerdictUnknown:
		o.failure = namespaceUnproven
		o.Reason = fmt.Sprintf("%s; whether the sandbox is gone is not known: %s", reason, evidence.Reason)
	case evidence.KeptBy == "":
		o.Reason = reason + " when it was looked at first, and is back now: restore again"
	case namespace.Cookie == 0:
		o.failure = namespaceKept
		o.Reason = fmt.Sprintf("%s; %s keeps the recorded namespace, or another one that has its inode now. The record has no cookie to tell. "+
			"If a pod lives in it: relink capture --refresh %s records it again", reason, evidence.KeptBy, o.argument())
	default:
		o.failure = namespaceKept
		o.Reason = fmt.Sprintf("%s; but %s keeps the namespace. No mount and no process shows it, so that nothing is restored in it. "+
			"If the pod is gone: relink forget %s --force", reason, evidence.KeptBy, m.record.Attachment.ContainerID)
	}
}

// onHost says that the interface is on devices of the host.
func onHost(record *checkpoint.Record) bool {
	return !record.Interface.ParentsInSandbox && record.Interface.Link.Kind != netstate.KindNIC
}

package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// located are records, sorted by what became of their namespaces.
type located struct {
	// here are the records whose namespace was found. living are the records whose namespace may exist: nobody could
	// look at it, or something keeps it but nobody can enter it.
	here, living []checkpoint.Record
	// outcomes are the outcomes of all records that are not in here.
	outcomes []*Outcome
}

// lost is a record whose path does not lead to its namespace any more.
type lost struct {
	record  checkpoint.Record
	outcome *Outcome
	// why says what is at the path.
	why error
}

// locate finds the namespaces of the records. It searches elsewhere only for a namespace that is not at its path.
func (r *run) locate(ctx context.Context, records []checkpoint.Record) (l located) {
	var missing []lost
	for _, record := range records {
		err := kernel.SameNamespace(record.Namespace)
		if err == nil {
			l.here = append(l.here, record)
			continue
		}
		o := outcomeOf(record)
		if isGone(err) {
			missing = append(missing, lost{record: record, outcome: o, why: err})
			continue
		}
		o.fail(err)
		l.outcomes, l.living = append(l.outcomes, o), append(l.living, record)
	}
	if len(missing) == 0 {
		return l
	}
	found, left := r.findElsewhere(missing)
	l.here = append(l.here, found...)
	r.proveGone(ctx, left)
	for _, m := range left {
		l.outcomes = append(l.outcomes, m.outcome)
		if m.outcome.State != SandboxGone {
			l.living = append(l.living, m.record)
		}
	}
	return l
}

// isGone says whether the error means that the path does not lead to the recorded namespace any more.
func isGone(err error) bool {
	return errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, attachment.ErrOtherNamespace)
}

// findElsewhere searches for the namespaces where relink capture finds sandboxes: at mounts and processes (sandbox.Find).
// It does not find a namespace that only an open file or a socket keeps: its pod may have ended, and another pod may have
// its address by now.
func (r *run) findElsewhere(missing []lost) (found []checkpoint.Record, left []lost) {
	var were []attachment.Namespace
	for _, m := range missing {
		if was := m.record.Namespace; r.elsewhere[was] == "" {
			were = append(were, was)
		}
	}
	maps.Copy(r.elsewhere, sandbox.Find(were...))
	for _, m := range missing {
		if r.elsewhere[m.record.Namespace] == "" {
			left = append(left, m)
		} else {
			found = append(found, m.record)
		}
	}
	return found, left
}

// noteElsewhere reports the sandboxes that are not at their recorded paths any more.
func (r *run) noteElsewhere(records []checkpoint.Record) {
	if len(r.elsewhere) == 0 {
		return
	}
	for _, record := range records {
		if path := r.elsewhere[record.Namespace]; path != "" {
			r.notes = appendNew(r.notes, fmt.Sprintf("%s: the sandbox is not at %s any more, but at %s: relink capture --refresh %s records that",
				outcomeOf(record).sandboxName(), record.Namespace.Path, path, record.Attachment.ContainerID))
		}
	}
}

// open opens the namespace at the record's path. It may be another namespace by now.
func (r *run) open(was attachment.Namespace) (*kernel.Namespace, error) {
	if path := r.elsewhere[was]; path != "" {
		return kernel.Open(path)
	}
	return kernel.Open(was.Path)
}

// vanish notes a record whose namespace went during the run.
func (r *run) vanish(m lost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vanished = append(r.vanished, m)
}

// proofWait bounds the search for processes that keep namespaces. The search reads all of /proc.
const proofWait = 10 * time.Second

// proveGone finds out whether the sandboxes are gone, and fills in the outcomes. One search serves all of them. A path
// can go while something still lives in the namespace. So a sandbox is SandboxGone only if there is proof.
func (r *run) proveGone(ctx context.Context, all []lost) {
	if len(all) == 0 {
		return
	}
	if r.unasked {
		for _, m := range all {
			m.outcome.State, m.outcome.lost, m.outcome.Reason = Failed, unproven, m.why.Error()
			r.absent = append(r.absent, m.record.Attachment)
		}
		return
	}
	if ctx.Err() != nil {
		for _, m := range all {
			m.outcome.fail(errors.New("interrupted before it was looked at"))
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, proofWait)
	defer cancel()
	var were []attachment.Namespace
	for _, m := range all {
		were = append(were, m.record.Namespace)
	}
	proven := sandbox.Prove(ctx, sandbox.SeesAllProcesses(), were...)
	for _, m := range all {
		m.tell(proven[m.record.Namespace])
	}
}

// lostWhy is the reason why nothing is restored in a namespace that is not at its path.
type lostWhy string

const (
	// kept: something keeps the namespace, but no path leads to it.
	kept lostWhy = "kept"
	// unproven: nobody knows whether the namespace is gone.
	unproven lostWhy = "unproven"
)

// tell fills in the outcome of the attachment by the evidence.
func (m lost) tell(now sandbox.Evidence) {
	o, was := m.outcome, m.record.Namespace
	why := m.why.Error()
	if !errors.Is(m.why, kernel.ErrNoNamespace) { // That error names the path.
		why = was.Path + ": " + why
	}
	o.State = Failed
	switch {
	case now.State == sandbox.IsGone:
		o.State, o.Reason = SandboxGone, "the sandbox is gone: "+why
	case now.State == sandbox.IsUnknown:
		o.lost = unproven
		o.Reason = fmt.Sprintf("%s; whether the sandbox is gone is not known: %s", why, now.Why)
	case now.KeptBy == "":
		o.Reason = why + " when it was looked at first, and is back now: restore again"
	case was.Cookie == 0:
		o.lost = kept
		o.Reason = fmt.Sprintf("%s; %s keeps the recorded namespace, or another one that has its inode now. The record has no cookie to tell. "+
			"If a pod lives in it: relink capture --refresh %s records it again", why, now.KeptBy, o.argument())
	default:
		o.lost = kept
		o.Reason = fmt.Sprintf("%s; but %s keeps the namespace. No mount and no process shows it, so that nothing is restored in it. "+
			"If the pod is gone: relink forget %s --force", why, now.KeptBy, m.record.Attachment.ContainerID)
	}
}

// onHost says that the interface is on devices of the host.
func onHost(record *checkpoint.Record) bool {
	return !record.Interface.ParentsInSandbox && record.Interface.Link.Kind != netstate.KindNIC
}

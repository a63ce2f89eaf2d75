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
	"github.com/relink-cni/relink/pkg/sandbox"
)

// namespaces knows where the network namespaces of records are.
type namespaces struct {
	// moved has the paths of those that are not at their recorded ones any more. It does not change
	// once the chains are there.
	moved map[attachment.Namespace]string
	// unasked says that nobody asked for the run. Then it does not prove which sandboxes are gone.
	unasked bool
}

// locate finds the namespaces of the records. found are the records whose namespace was found, rest are the others: in a namespace that is
// proven gone, or that may exist, but nobody could look at it, or enter it.
func (n namespaces) locate(ctx context.Context, records []checkpoint.Record) (found []checkpoint.Record, rest []*attachmentState) {
	var missing []*attachmentState
	for i := range records {
		err := kernel.CheckNamespace(records[i].Namespace)
		if err == nil {
			found = append(found, records[i])
			continue
		}
		s := newState(&records[i])
		if kernel.IsMissing(err) {
			s.missing = err
			missing = append(missing, s)
			continue
		}
		s.outcome.Fail(err)
		rest = append(rest, s)
	}
	if len(missing) == 0 {
		return found, rest
	}
	// The search looks where relink capture finds sandboxes: at mounts and processes. It does not find a namespace that only an open file or
	// a socket keeps: its pod may have ended, and another pod may have its address by now.
	maps.Copy(n.moved, sandbox.FindPaths(namespacesOf(missing)...))
	var absent []*attachmentState
	for _, s := range missing {
		if n.moved[s.namespace] != "" {
			found = append(found, *s.listed)
		} else {
			absent = append(absent, s)
		}
	}
	n.proveGone(ctx, absent)
	return found, append(rest, absent...)
}

func namespacesOf(states []*attachmentState) (list []attachment.Namespace) {
	for _, s := range states {
		list = append(list, s.namespace)
	}
	return list
}

// movedNotes names the sandboxes that are not at their recorded paths any more.
func (n namespaces) movedNotes(records []checkpoint.Record) (notes []string) {
	if len(n.moved) == 0 {
		return nil
	}
	for _, record := range records {
		if path := n.moved[record.Namespace]; path != "" {
			addNew(&notes, fmt.Sprintf("%s: the sandbox is not at %s any more, but at %s: relink capture --refresh %s records that",
				outcomeOf(record).SandboxName(), record.Namespace.Path, path, record.Attachment.ContainerID))
		}
	}
	return notes
}

// open is kernel.OpenSame, which need not search for what locate has found.
func (n namespaces) open(namespace attachment.Namespace) (*kernel.Namespace, error) {
	namespace.Path = cmp.Or(n.moved[namespace], namespace.Path)
	return kernel.OpenSame(namespace)
}

// proofTimeout bounds the search for processes that keep namespaces. The search reads all of /proc.
const proofTimeout = 10 * time.Second

// proveGone finds out whether the sandboxes are gone, and fills in the outcomes. One search serves all of them. A path
// can go while something still lives in the namespace. So a sandbox is SandboxGone only if there is proof.
func (n namespaces) proveGone(ctx context.Context, missing []*attachmentState) {
	var proven map[attachment.Namespace]sandbox.Evidence
	if len(missing) > 0 && ctx.Err() == nil && !n.unasked {
		limited, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		proven = sandbox.Prove(limited, sandbox.SeesAllProcesses(), namespacesOf(missing)...)
	}
	for _, s := range missing {
		switch {
		case n.unasked:
			s.outcome.Fail(&Problem{Reason: s.missing.Error(), Cause: namespaceUnproven})
		case proven == nil:
			s.outcome.Fail(change.ErrNotTried)
		default:
			s.setNamespaceOutcome(proven[s.namespace])
		}
	}
}

// The causes for which nothing is restored in a namespace that is not at its path.
const (
	namespaceKept = "the sandboxes are not at their paths any more, but something keeps their network namespaces: " +
		"nothing is restored in them. If the pod is gone: relink forget CONTAINER-ID --force"
	namespaceUnproven = "the sandboxes are not at their paths any more, and nobody knows whether they are gone"
)

// setNamespaceOutcome fills in the outcome of an attachment whose namespace is missing, by the evidence.
func (s *attachmentState) setNamespaceOutcome(evidence sandbox.Evidence) {
	o, path := &s.outcome, s.namespace.Path
	reason := s.missing.Error()
	if !errors.Is(s.missing, kernel.ErrNoNamespace) { // That error names the path.
		reason = path + ": " + reason
	}
	switch {
	case evidence.Verdict == sandbox.VerdictGone:
		o.State, o.Reason = SandboxGone, "the sandbox is gone: "+reason
	case evidence.Verdict == sandbox.VerdictUnknown:
		o.Fail(&Problem{Cause: namespaceUnproven, Reason: fmt.Sprintf("%s; whether the sandbox is gone is not known: %s", reason, evidence.Reason)})
	case evidence.KeptBy == "":
		o.Fail(&Problem{Reason: reason + " when it was looked at first, and is back now: restore again"})
	case s.namespace.Cookie == 0:
		o.Fail(&Problem{Cause: namespaceKept, Reason: fmt.Sprintf("%s; %s keeps the recorded namespace, or another one that has its inode now. The record has no cookie to tell. "+
			"If a pod lives in it: relink capture --refresh %s records it again", reason, evidence.KeptBy, o.argument())})
	default:
		o.Fail(&Problem{Cause: namespaceKept, Reason: fmt.Sprintf("%s; but %s keeps the namespace. No mount and no process shows it, so that nothing is restored in it. "+
			"If the pod is gone: relink forget %s --force", reason, evidence.KeptBy, o.Attachment.ContainerID)})
	}
}

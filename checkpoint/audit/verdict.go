package audit

import (
	"cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// RuntimeState is what the container runtime says of a sandbox.
type RuntimeState string

// The values of RuntimeState.
const (
	// Runs: the runtime keeps the sandbox running.
	Runs RuntimeState = "ready"
	// Stopped: the runtime still has the sandbox, and will call DEL.
	Stopped RuntimeState = "stopped"
	// Absent: the runtime told of all its sandboxes, and this is none of them.
	Absent RuntimeState = "absent"
	// NotAsked: the runtime did not tell of all its sandboxes.
	NotAsked RuntimeState = "not asked"
)

// sandboxVerdict is what became of a sandbox.
type sandboxVerdict struct {
	sandbox.Judgement
	// namespace and runtime are the two proofs.
	namespace sandbox.Verdict
	runtime   RuntimeState
	// path is where a live namespace is.
	path string
}

// namespaceTexts begin the evidence of a namespace.
var namespaceTexts = map[sandbox.Verdict]string{
	sandbox.VerdictGone:    "its network namespace is gone: ",
	sandbox.VerdictAlive:   "its network namespace is there: ",
	sandbox.VerdictUnknown: "whether its network namespace is gone is not known: ",
}

// verdictOf says what became of the sandbox. It is gone if its namespace is, and the runtime does not have it either.
func (s Sandboxes) verdictOf(containerID string, namespace attachment.Namespace) sandboxVerdict {
	v := sandboxVerdict{runtime: s.runtimeState(containerID)}
	if live, ok := s.Live[namespace.File()]; ok && namespace.Same(live.Namespace) == nil {
		v.namespace, v.path = sandbox.VerdictAlive, live.Namespace.Path
		v.Judgement = v.With(v.namespace, "its network namespace is there, at %s", v.path)
		return v
	}
	proof := cmp.Or(s.Proofs[namespace], sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "nobody has looked for its network namespace"})
	v.namespace = proof.Verdict
	v.Judgement = v.With(proof.Verdict, "%s", namespaceTexts[proof.Verdict]+proof.Reason)
	return s.withRuntime(containerID, v)
}

// holderVerdict is verdictOf for a holder. If its namespace was not recorded, or only by an import, the namespaces' addresses
// and the CNI caches have to show that it is gone, too.
func (s Sandboxes) holderVerdict(h *lease.Holder) sandboxVerdict {
	if h.Namespace.Inode != 0 && h.Origin != lease.Imported {
		return s.verdictOf(h.ContainerID, h.Namespace)
	}
	j, judged := s.Judged[h]
	if !judged {
		j = j.With(sandbox.VerdictUnknown, "its network namespace was not recorded")
	}
	v := sandboxVerdict{Judgement: j, namespace: j.Verdict, runtime: s.runtimeState(h.ContainerID)}
	if j.Verdict == sandbox.VerdictDELDue {
		v.namespace = sandbox.VerdictGone
	}
	if s.Cache != nil && v.runtime == NotAsked {
		return v // The caches were part of the judgement.
	}
	return s.withRuntime(h.ContainerID, v)
}

// withRuntime completes the verdict of a sandbox that is gone by what the runtime says.
func (s Sandboxes) withRuntime(containerID string, v sandboxVerdict) sandboxVerdict {
	if v.Verdict != sandbox.VerdictGone {
		return v
	}
	switch {
	case v.runtime == NotAsked && s.Cache != nil:
		v.Judgement = s.Cache.Judge(containerID, v.Judgement)
	case v.runtime == NotAsked:
		v.Judgement = v.With(sandbox.VerdictUnknown, "the container runtime did not say that it has no such sandbox: %s", s.NotAsked)
	case v.runtime == Runs:
		v.Judgement = v.With(sandbox.VerdictUnknown, "but the container runtime says that the sandbox is ready")
	case v.runtime == Stopped:
		v.Judgement = v.With(sandbox.VerdictDELDue, "the container runtime still has the sandbox, stopped: it owes a DEL")
	default:
		v.Judgement = v.With(sandbox.VerdictGone, "the container runtime does not have the sandbox")
	}
	return v
}

func (s Sandboxes) runtimeState(containerID string) RuntimeState {
	entry, ok := s.Runtime[containerID]
	switch {
	case ok && entry.Ready:
		return Runs
	case ok:
		return Stopped
	case s.NotAsked != "":
		return NotAsked
	}
	return Absent
}

// fields are the verdict for programs.
func (v sandboxVerdict) fields(namespace attachment.Namespace) Fields {
	return Fields{Namespace: namespace, NamespaceState: v.namespace, Runtime: v.runtime}
}

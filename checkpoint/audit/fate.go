package audit

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
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
	state reclaim.Verdict
	// namespace and runtime are the two proofs.
	namespace sandbox.Verdict
	runtime   RuntimeState
	// path is where a live namespace is.
	path     string
	evidence []string
}

// verdictOf says what became of the sandbox. It is gone if its namespace is, and the runtime does not have it either.
func (s Sandboxes) verdictOf(containerID string, namespace attachment.Namespace) sandboxVerdict {
	f := sandboxVerdict{runtime: s.runtimeState(containerID)}
	if live, ok := s.Live[NamespaceIDOf(namespace)]; ok && namespace.Same(live.Namespace) == nil {
		f.state, f.namespace, f.path = reclaim.Alive, sandbox.VerdictAlive, live.Namespace.Path
		f.evidence = []string{"its network namespace is there, at " + live.Namespace.Path}
		return f
	}
	proof, ok := s.Proofs[namespace]
	if !ok {
		proof = sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "nobody has looked for its network namespace"}
	}
	f.namespace = proof.Verdict
	switch proof.Verdict {
	case sandbox.VerdictGone:
		f.evidence = []string{"its network namespace is gone: " + proof.Reason}
		return s.withRuntime(f)
	case sandbox.VerdictAlive:
		f.state, f.evidence = reclaim.Alive, []string{"its network namespace is there: " + proof.Reason}
	default:
		f.state, f.evidence = reclaim.Unknown, []string{"whether its network namespace is gone is not known: " + proof.Reason}
	}
	return f
}

// holderVerdict is verdictOf for a holder. If its namespace was not recorded, or only by an import, the namespaces' addresses
// and the CNI caches have to show that it is gone, too.
func (s Sandboxes) holderVerdict(n *Network, l lease.Lease, h lease.Holder) sandboxVerdict {
	if h.Namespace.Inode != 0 && h.Origin != lease.Imported {
		return s.verdictOf(h.ContainerID, h.Namespace)
	}
	j, judged := s.Judged[Holding{n.Dir, n.Name, l.Address, h.ContainerID, h.IfName}]
	if !judged {
		j = reclaim.SandboxJudgement{Verdict: reclaim.Unknown, Evidence: []string{"its network namespace was not recorded"}}
	}
	f := sandboxVerdict{state: j.Verdict, namespace: sandbox.VerdictUnknown, runtime: s.runtimeState(h.ContainerID), evidence: slices.Clone(j.Evidence)}
	switch j.Verdict {
	case reclaim.Alive:
		f.namespace = sandbox.VerdictAlive
	case reclaim.DELDue:
		f.namespace = sandbox.VerdictGone
	case reclaim.Gone:
		f.namespace = sandbox.VerdictGone
		return s.withRuntime(f)
	}
	return f
}

// withRuntime completes the verdict of a sandbox whose namespace is gone by what the runtime says.
func (s Sandboxes) withRuntime(f sandboxVerdict) sandboxVerdict {
	switch f.runtime {
	case NotAsked:
		f.state = reclaim.Unknown
		f.evidence = append(f.evidence, "the container runtime did not say that it has no such sandbox: "+s.NotAsked)
	case Runs:
		f.state = reclaim.Unknown
		f.evidence = append(f.evidence, "but the container runtime says that the sandbox is ready")
	case Stopped:
		f.state = reclaim.DELDue
		f.evidence = append(f.evidence, "the container runtime still has the sandbox, stopped: it owes a DEL")
	default:
		f.state = reclaim.Gone
		f.evidence = append(f.evidence, "the container runtime does not have the sandbox")
	}
	return f
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

// fields are the fate for programs.
func (f sandboxVerdict) fields(namespace attachment.Namespace) Fields {
	return Fields{Namespace: namespace, NamespaceState: f.namespace, Runtime: f.runtime}
}

// unknownToRuntime says in words that the runtime does not have a sandbox that is there.
func (f sandboxVerdict) unknownToRuntime() string {
	return fmt.Sprintf("its network namespace is there, at %s, and the container runtime does not have the sandbox: it is another runtime's, or was left behind", f.path)
}

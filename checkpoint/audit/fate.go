package audit

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// RuntimeSays is what the container runtime says of a sandbox.
type RuntimeSays string

// The values of RuntimeSays.
const (
	// Runs: the runtime keeps the sandbox running.
	Runs RuntimeSays = "ready"
	// Stopped: the runtime still has the sandbox, and will call DEL.
	Stopped RuntimeSays = "stopped"
	// Absent: the runtime told of all its sandboxes, and this is none of them.
	Absent RuntimeSays = "absent"
	// NotAsked: the runtime did not tell of all its sandboxes.
	NotAsked RuntimeSays = "not asked"
)

// fate is what became of a sandbox.
type fate struct {
	is reclaim.Verdict
	// namespace and runtime are the two proofs.
	namespace sandbox.State
	runtime   RuntimeSays
	// path is where a live namespace is.
	path     string
	evidence []string
}

// fateOf says what became of the sandbox. It is gone if its namespace is, and the runtime does not have it either.
func (s Sandboxes) fateOf(containerID string, was attachment.Namespace) fate {
	f := fate{runtime: s.says(containerID)}
	if live, there := s.Live[PlaceOf(was)]; there && was.Same(live.Namespace) == nil {
		f.is, f.namespace, f.path = reclaim.Alive, sandbox.IsAlive, live.Namespace.Path
		f.evidence = []string{"its network namespace is there, at " + live.Namespace.Path}
		return f
	}
	proof, looked := s.Proofs[was]
	if !looked {
		proof = sandbox.Evidence{State: sandbox.IsUnknown, Why: "nobody has looked for its network namespace"}
	}
	f.namespace = proof.State
	switch proof.State {
	case sandbox.IsGone:
		f.evidence = []string{"its network namespace is gone: " + proof.Why}
		return s.withRuntime(f)
	case sandbox.IsAlive:
		f.is, f.evidence = reclaim.Alive, []string{"its network namespace is there: " + proof.Why}
	default:
		f.is, f.evidence = reclaim.Unknown, []string{"whether its network namespace is gone is not known: " + proof.Why}
	}
	return f
}

// fateOfHolder is fateOf for a holder. If its namespace was not recorded, or only by an import, the namespaces' addresses
// and the CNI caches have to show that it is gone, too.
func (s Sandboxes) fateOfHolder(n *Network, l lease.Lease, h lease.Holder) fate {
	if h.Namespace.Inode != 0 && h.Origin != lease.Imported {
		return s.fateOf(h.ContainerID, h.Namespace)
	}
	j, judged := s.Judged[Holding{n.Dir, n.Name, l.Address, h.ContainerID, h.IfName}]
	if !judged {
		j = reclaim.Judgement{Verdict: reclaim.Unknown, Evidence: []string{"its network namespace was not recorded"}}
	}
	f := fate{is: j.Verdict, namespace: sandbox.IsUnknown, runtime: s.says(h.ContainerID), evidence: slices.Clone(j.Evidence)}
	switch j.Verdict {
	case reclaim.Alive:
		f.namespace = sandbox.IsAlive
	case reclaim.Due:
		f.namespace = sandbox.IsGone
	case reclaim.Gone:
		f.namespace = sandbox.IsGone
		return s.withRuntime(f)
	}
	return f
}

// withRuntime completes the fate of a sandbox whose namespace is gone by what the runtime says.
func (s Sandboxes) withRuntime(f fate) fate {
	switch f.runtime {
	case NotAsked:
		f.is = reclaim.Unknown
		f.evidence = append(f.evidence, "the container runtime did not say that it has no such sandbox: "+s.NotAsked)
	case Runs:
		f.is = reclaim.Unknown
		f.evidence = append(f.evidence, "but the container runtime says that the sandbox is ready")
	case Stopped:
		f.is = reclaim.Due
		f.evidence = append(f.evidence, "the container runtime still has the sandbox, stopped: it owes a DEL")
	default:
		f.is = reclaim.Gone
		f.evidence = append(f.evidence, "the container runtime does not have the sandbox")
	}
	return f
}

func (s Sandboxes) says(containerID string) RuntimeSays {
	told, has := s.Runtime[containerID]
	switch {
	case has && told.Ready:
		return Runs
	case has:
		return Stopped
	case s.NotAsked != "":
		return NotAsked
	}
	return Absent
}

// fields are the fate for programs.
func (f fate) fields(was attachment.Namespace) Fields {
	return Fields{Namespace: was, NamespaceIs: f.namespace, Runtime: f.runtime}
}

// unknownToRuntime says in words that the runtime does not have a sandbox that is there.
func (f fate) unknownToRuntime() string {
	return fmt.Sprintf("its network namespace is there, at %s, and the container runtime does not have the sandbox: it is another runtime's, or was left behind", f.path)
}

package hostends

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
)

// reconcilePod makes right in the pod what follows from the node, and notes what else differs.
func (k *Reconciler) reconcilePod(r checkpoint.Record, node hostaccess.Node) (steps []string, err error) {
	name := r.Pod.Or(r.Attachment.String())
	found, remaining, err := FollowNode(k.Store, k.Host, r, node)
	if kernel.IsMissing(err) || errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil, nil // Its DEL comes, or was faster, or a GC comes.
	}
	if err == nil || len(remaining.Differences) > remaining.OfNode {
		k.setDrift(r, remaining.Differences)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, d := range found.Differences {
		if !slices.Contains(remaining.Differences, d) {
			steps = append(steps, name+": "+d)
		}
	}
	return steps, nil
}

// FollowNode makes right what follows from the node. found is what it has found, and remaining what is left then. It looks first, and takes
// the sandbox's lock only if something is to be done. The error is ErrBusy if somebody works on the sandbox, ErrNoCheckpoint if the attachment
// has no host access any more, and an error of kernel.OpenSame if its namespace is gone.
func FollowNode(store *checkpoint.Store, host *kernel.Namespace, r checkpoint.Record, node hostaccess.Node) (found, remaining hostaccess.Inspection, err error) {
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		return found, remaining, err
	}
	found, err = podOf(host, r, sandbox).Inspect(node)
	sandbox.Close()
	if remaining = found; err != nil || found.OfNode == 0 {
		return found, remaining, err
	}
	unlock, err := store.TryLockRecord(r)
	if err != nil {
		return found, remaining, err
	}
	defer unlock()
	err = store.OpenSandbox(r, func(s *checkpoint.Sandbox) (err error) {
		if s.Record.HostAccess == nil {
			return checkpoint.ErrNoCheckpoint
		}
		pod := podOf(host, s.Record, s.Namespace)
		if found, err = pod.Inspect(node); err == nil {
			err = pod.FollowNode(found, node)
		}
		if err != nil {
			return err
		}
		if remaining, err = pod.Inspect(node); err == nil && remaining.OfNode > 0 {
			err = fmt.Errorf("not as it should be: %s", strings.Join(remaining.Differences, "; "))
		}
		return err
	})
	return found, remaining, err
}

// podOf is the pod without its rules of iptables.
func podOf(host *kernel.Namespace, r checkpoint.Record, sandbox *kernel.Namespace) hostaccess.Pod {
	pod := r.HostAccessPod(host, sandbox)
	pod.WithoutFilter = true
	return pod
}

// setDrift notes what somebody has changed. Without differences, it removes the note.
func (k *Reconciler) setDrift(r checkpoint.Record, differences []string) {
	k.mu.Lock()
	before, exists := k.drifts[r.Attachment]
	f := control.Drift{Attachment: r.Attachment, Pod: r.Pod, Reason: "host access: " + strings.Join(differences, ", ")}
	if len(differences) == 0 {
		delete(k.drifts, r.Attachment)
	} else {
		k.drifts[r.Attachment] = f
	}
	k.mu.Unlock()
	if exists != (len(differences) > 0) || exists && before != f {
		k.OnDrifts()
	}
}

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
	sandbox, err := kernel.OpenSame(r.Namespace)
	if kernel.IsMissing(err) {
		return nil, nil // Its DEL comes, or a GC.
	}
	if err != nil {
		return nil, err
	}
	defer sandbox.Close()
	pod := r.HostAccessPod(k.Host, sandbox)
	pod.WithoutFilter = true
	inspection, err := pod.Inspect(node)
	if err == nil && inspection.OfNode > 0 {
		var found hostaccess.Inspection
		found, inspection, err = FollowNode(k.Store, k.Host, r, node)
		for _, d := range found.Differences {
			if !slices.Contains(inspection.Differences, d) {
				steps = append(steps, r.Pod.Or(r.Attachment.String())+": "+d)
			}
		}
	}
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || kernel.IsMissing(err) {
		err = nil // Its DEL was faster.
	}
	if err != nil {
		if len(inspection.Differences) > inspection.OfNode {
			k.setDrift(r, inspection.Differences)
		}
		return nil, fmt.Errorf("%s: %w", r.Pod.Or(r.Attachment.String()), err)
	}
	k.setDrift(r, inspection.Differences)
	return steps, nil
}

// FollowNode looks at the pod under the sandbox's lock, and makes right what follows from the node. found is what it has found, and empty if
// nobody could look. remaining is what is left then. The error is ErrBusy if somebody works on the sandbox, ErrNoCheckpoint if the attachment
// has no host access any more, and an error of kernel.OpenSame if its namespace is gone.
func FollowNode(store *checkpoint.Store, host *kernel.Namespace, r checkpoint.Record, node hostaccess.Node) (found, remaining hostaccess.Inspection, err error) {
	unlock, err := store.TryLockRecord(r)
	if err != nil {
		return found, remaining, err
	}
	defer unlock()
	err = store.OpenSandbox(r, func(s *checkpoint.Sandbox) (err error) {
		if s.Record.HostAccess == nil {
			return checkpoint.ErrNoCheckpoint
		}
		pod := s.Record.HostAccessPod(host, s.Namespace)
		pod.WithoutFilter = true
		if found, err = pod.Inspect(node); err != nil {
			found = hostaccess.Inspection{}
			return err
		}
		if remaining = found; found.OfNode == 0 {
			return nil
		}
		if err = pod.FollowNode(found, node); err != nil {
			return err
		}
		if remaining, err = pod.Inspect(node); err == nil && remaining.OfNode > 0 {
			err = fmt.Errorf("not as it should be: %s", strings.Join(remaining.Differences, "; "))
		}
		return err
	})
	return found, remaining, err
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

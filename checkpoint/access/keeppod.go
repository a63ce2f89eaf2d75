package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
)

// pod makes right what follows from the node, and notes what does not.
func (k *Keeper) pod(r checkpoint.Record, node hostaccess.Node) (steps []string, err error) {
	sandbox, err := kernel.OpenSame(r.Namespace)
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, attachment.ErrOtherNamespace) {
		return nil, nil // Its DEL comes, or a GC.
	}
	if err != nil {
		return nil, err
	}
	defer sandbox.Close()
	pod := r.AccessIn(k.Host, sandbox)
	pod.WithoutFilter = true
	seen, err := pod.Look(node)
	if err == nil && (seen.NodeOnly || seen.Follows()) {
		steps, seen, err = k.follow(r, pod, node)
	}
	if err != nil {
		if len(seen.Differences) > 0 && !seen.NodeOnly {
			k.note(r, seen.Differences)
		}
		return nil, fmt.Errorf("%s: %w", name(r), err)
	}
	k.note(r, seen.Differences)
	return steps, nil
}

// follow looks again under the sandbox's lock, and makes right what follows from the node. It returns what it did, and what is left
// then. If somebody works on the sandbox, it returns ErrBusy.
func (k *Keeper) follow(r checkpoint.Record, pod hostaccess.Pod, node hostaccess.Node) (steps []string, left hostaccess.Seen, err error) {
	unlock, err := k.Store.TryLockOf(r)
	if err != nil {
		return nil, left, err
	}
	defer unlock()
	now, err := k.Store.Reload(r)
	if errors.Is(err, checkpoint.ErrNone) || err == nil && now.HostAccess == nil {
		return nil, left, nil // Its DEL was faster.
	}
	if err != nil {
		return nil, left, err
	}
	// Somebody may have changed the host access since the Keeper was told of it.
	pod.Access = *now.HostAccess
	seen, err := pod.Look(node)
	if err != nil {
		return nil, left, err
	}
	if seen.NodeOnly {
		err = pod.Mend(seen, node)
	} else if err = pod.Follow(seen); err != nil {
		return nil, seen, err
	} else {
		left, err = pod.Look(node)
	}
	for _, d := range seen.Differences {
		if !slices.Contains(left.Differences, d) {
			steps = append(steps, name(r)+": "+d)
		}
	}
	return steps, left, err
}

func name(r checkpoint.Record) string {
	if r.Pod.Name != "" {
		return r.Pod.String()
	}
	return r.Attachment.String()
}

// note notes what somebody has changed, or that nothing is changed any more.
func (k *Keeper) note(r checkpoint.Record, differences []string) {
	k.mu.Lock()
	before, was := k.findings[r.Attachment]
	f := Finding{Attachment: r.Attachment, Pod: r.Pod, Reason: "host access: " + strings.Join(differences, ", ")}
	if len(differences) == 0 {
		delete(k.findings, r.Attachment)
	} else {
		k.findings[r.Attachment] = f
	}
	k.mu.Unlock()
	if was != (len(differences) > 0) || was && before != f {
		k.OnFindings()
	}
}

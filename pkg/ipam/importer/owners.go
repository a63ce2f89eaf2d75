package importer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// OwnerAsker tells whose pods are, by the Kubernetes API.
type OwnerAsker interface {
	Ask(ctx context.Context, q owner.Question) (owner.Answer, error)
}

// ownersTimeout is how long an import asks for owners. An API that does not answer costs owner.AskTimeout for each pod.
const ownersTimeout = 30 * time.Second

// askOwners asks for the owner of each pod whose address will be kept, before anything changes. Without an answer the address is kept
// for the pod by its name, and the report says so.
func (im *importRun) askOwners(ctx context.Context) error {
	im.pendingOwners, im.answers = map[attachment.Key]attachment.Pod{}, map[attachment.Key]owner.Answer{}
	if err := im.leases.Import(ctx, true, im.decide); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	keys := slices.SortedFunc(maps.Keys(im.pendingOwners), func(a, b attachment.Key) int { return cmp.Compare(a.String(), b.String()) })
	var unknown []string
	var reason error
	for _, key := range keys {
		answer, err := im.Owners.Ask(ctx, owner.Question{Pod: im.pendingOwners[key], Network: im.network, IfName: key.IfName})
		if err != nil {
			unknown, reason = append(unknown, im.pendingOwners[key].String()), err
			continue
		}
		im.answers[key] = answer
	}
	if reason != nil {
		im.failed = append(im.failed, fmt.Sprintf("the addresses of %s are kept for these pods by their names, and not for their owners: run it again: %v", strings.Join(unknown, ", "), reason))
	}
	return nil
}

// ownerOf returns what the API knows of the pod, false if nobody was asked or could tell. It notes a pod that nobody was asked about so
// far. j is the judgement of its sandbox: the API does not know a pod that is gone.
func (im *importRun) ownerOf(key attachment.Key, pod attachment.Pod, j sandbox.Judgement) (owner.Answer, bool) {
	answer, ok := im.answers[key]
	if !ok && im.pendingOwners != nil && pod.Owner() != (attachment.Owner{}) && !isGone(j) {
		im.pendingOwners[key] = pod
	}
	return answer, ok
}

// keepForOwner makes the holder one whose addresses are kept for the owner, as an ADD with "sticky": "owner" does.
func (im *importRun) keepForOwner(h *lease.Holder, a owner.Answer) {
	h.Owner = a.Owner
	h.Policy.ByOwner, h.Policy.Shared, h.Policy.Sticky, h.Policy.Retain = true, !a.SinglePod, a.Persistent, 0
	if a.Persistent {
		h.Policy.Retain = im.Policy.Retain
	}
}

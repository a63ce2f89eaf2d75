package capture

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/wait"
)

// settleDelay is the time between two looks. An ADD or a DEL that is under way finishes its next steps in that time. Its
// interface has no checkpoint for a moment: an ADD saves the checkpoint last, a DEL forgets it first.
const settleDelay = 300 * time.Millisecond

// waitSettleDelay waits for the time between two looks. It returns the context's error if the context ends first.
func waitSettleDelay(ctx context.Context) error {
	if !wait.Sleep(ctx, settleDelay) {
		return ctx.Err()
	}
	return nil
}

// FindUnrecorded returns the interfaces of running sandboxes that have no checkpoint and are not the pods' own. The
// second result names what it could not look at. It changes nothing. It takes a second look at what it would
// return, so that a pod that is being attached or detached is not reported. If the context ends between the
// looks, it returns the context's error.
func FindUnrecorded(ctx context.Context, opts Options) ([]LiveInterface, []InspectionProblem, error) {
	first, problems, err := inspectUnrecorded(opts, nil)
	if err != nil || len(first)+len(problems) == 0 {
		return nil, nil, err
	}
	if err := waitSettleDelay(ctx); err != nil {
		return nil, nil, err
	}
	return recheckUnrecorded(opts, first, problems)
}

// recheckUnrecorded takes the second look of FindUnrecorded. The first one found the interfaces and the problems.
func recheckUnrecorded(opts Options, first []LiveInterface, problems []InspectionProblem) ([]LiveInterface, []InspectionProblem, error) {
	reported, failed, limit := map[interfaceKey]bool{}, problemNamespaces(problems), problemNamespaces(problems)
	for _, f := range first {
		reported[liveKey(f)], limit[f.Namespace.File()] = true, true
	}
	second, problems, err := inspectUnrecorded(opts, limit)
	// The first look knows only a part of a sandbox that had a problem.
	second = slices.DeleteFunc(second, func(f LiveInterface) bool { return !reported[liveKey(f)] && !failed[f.Namespace.File()] })
	return second, problems, err
}

// inspectUnrecorded looks once, into all sandboxes or only into some.
func inspectUnrecorded(opts Options, limit map[attachment.NamespaceFile]bool) (unrecorded []LiveInterface, problems []InspectionProblem, err error) {
	r := newRun(opts)
	node, err := r.readSandboxes(limit, true)
	if err != nil {
		return nil, nil, err
	}
	defer r.inspector.close()
	for _, f := range node.Interfaces {
		// An interface whose checkpoint has a known namespace is not among those found.
		if _, torn := findUnreadable(f, matchedRecords{}, node.Records, node.Unreadable); torn {
			continue // The checkpoint itself is reported.
		}
		if err := f.Attachment.Validate(); err != nil {
			f.Reason = cmp.Or(f.Reason, invalidNameReason(err))
		}
		if f.Origin != PodMade {
			unrecorded = append(unrecorded, f)
		}
	}
	return unrecorded, r.problems, nil
}

// interfaceKey identifies an interface of a running sandbox. Its namespace has no path: a namespace can have many,
// and each look can find it by another one.
type interfaceKey struct {
	namespace attachment.Namespace
	index     int
}

func interfaceKeyOf(namespace attachment.Namespace, index int) interfaceKey {
	namespace.Path = ""
	return interfaceKey{namespace, index}
}

func liveKey(f LiveInterface) interfaceKey { return interfaceKeyOf(f.Namespace, f.Live.Link.Index) }

func problemNamespaces(problems []InspectionProblem) map[attachment.NamespaceFile]bool {
	result := map[attachment.NamespaceFile]bool{}
	for _, p := range problems {
		result[p.Namespace.File()] = true
	}
	return result
}

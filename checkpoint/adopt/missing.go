package adopt

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// changing is the time between two looks. An ADD or a DEL that is under way finishes its next steps in that time. Its
// interface has no checkpoint for a moment: an ADD saves the checkpoint last, a DEL forgets it first.
const changing = 300 * time.Millisecond

// settle waits for the time between two looks. It returns the context's error if the context ends first.
func settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(changing):
		return nil
	}
}

// Missing returns the interfaces of running sandboxes that have no checkpoint and are not the pods' own. The
// second result names what it could not look at. It changes nothing. It takes a second look at what it would
// return, so that a pod that is being attached or detached is not reported. If the context ends between the
// looks, it returns the context's error.
func Missing(ctx context.Context, opts Options) ([]Found, []Problem, error) {
	first, problems, err := withoutCheckpoint(opts, nil)
	if err != nil || len(first)+len(problems) == 0 {
		return nil, nil, err
	}
	if err := settle(ctx); err != nil {
		return nil, nil, err
	}
	return stillMissing(opts, first, problems)
}

// stillMissing takes the second look of Missing. The first one found the interfaces and the problems.
func stillMissing(opts Options, first []Found, problems []Problem) ([]Found, []Problem, error) {
	reported, failed, some := map[interfaceAt]bool{}, filesOf(problems), filesOf(problems)
	for _, f := range first {
		reported[placeOf(f)], some[fileOf(f.Namespace)] = true, true
	}
	second, problems, err := withoutCheckpoint(opts, some)
	// The first look knows only a part of a sandbox that had a problem.
	second = slices.DeleteFunc(second, func(f Found) bool { return !reported[placeOf(f)] && !failed[fileOf(f.Namespace)] })
	return second, problems, err
}

// withoutCheckpoint looks once, into all sandboxes or only into some.
func withoutCheckpoint(opts Options, some map[file]bool) (none []Found, problems []Problem, err error) {
	records, unreadable, err := opts.Store.List()
	if err != nil {
		return nil, nil, err
	}
	l, _, err := newLook(opts, records, unreadable, true)
	if err != nil {
		return nil, nil, err
	}
	defer l.close()
	node, problems, err := l.all(some)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range node.Found {
		// An interface whose checkpoint has a known namespace is not among those found.
		if _, torn := unreadableOf(f, matched{}, records, unreadable); torn {
			continue // The checkpoint itself is reported.
		}
		if err := f.Attachment.Validate(); err != nil {
			f.Why = cmp.Or(f.Why, impossible(err))
		}
		if f.Origin != PodsOwn {
			none = append(none, f)
		}
	}
	return none, problems, nil
}

// interfaceAt identifies an interface of a running sandbox. Its namespace has no path: a namespace can have many,
// and each look can find it by another one.
type interfaceAt struct {
	namespace attachment.Namespace
	index     int
}

func at(namespace attachment.Namespace, index int) interfaceAt {
	namespace.Path = ""
	return interfaceAt{namespace, index}
}

func placeOf(f Found) interfaceAt { return at(f.Namespace, f.Live.Link.Index) }

func fileOf(n attachment.Namespace) file { return file{n.Device, n.Inode} }

func filesOf(problems []Problem) map[file]bool {
	all := map[file]bool{}
	for _, p := range problems {
		all[fileOf(p.Namespace)] = true
	}
	return all
}

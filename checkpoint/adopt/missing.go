package adopt

import (
	"cmp"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// changing is how long an ADD or a DEL that is under way may have for its next steps before a look counts. Such
// an interface has no checkpoint for a moment: an ADD saves it last, a DEL forgets it first.
const changing = 300 * time.Millisecond

// Missing returns the interfaces of running sandboxes that have no checkpoint and are not the pods' own. The
// second result names what it could not look at. It changes nothing. It takes a second look at what it would
// return, so that a pod that is being attached or detached is not reported.
func Missing(opts Options) ([]Found, []Problem, error) {
	first, problems, err := withoutCheckpoint(opts, nil)
	if err != nil || len(first)+len(problems) == 0 {
		return nil, nil, err
	}
	time.Sleep(changing)
	reported, failed := map[interfaceAt]bool{}, filesOf(problems)
	some := filesOf(problems)
	for _, f := range first {
		reported[placeOf(f)], some[fileOf(f.Namespace)] = true, true
	}
	second, problems, err := withoutCheckpoint(opts, some)
	second = slices.DeleteFunc(second, func(f Found) bool { return !reported[placeOf(f)] })
	return second, slices.DeleteFunc(problems, func(p Problem) bool { return !failed[fileOf(p.Namespace)] }), err
}

// withoutCheckpoint looks once, into all sandboxes or only into some.
func withoutCheckpoint(opts Options, some map[file]bool) (none []Found, problems []Problem, err error) {
	records, unreadable, err := opts.Store.List()
	if err != nil {
		return nil, nil, err
	}
	l, _, err := newLook(opts, slices.Concat(records, leftovers(unreadable, records)), true)
	if err != nil {
		return nil, nil, err
	}
	defer l.close()
	node, problems, err := l.all(some)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range node.Found {
		if _, torn := unreadableOf(f, records, unreadable); torn {
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

// interfaceAt identifies an interface of a running sandbox.
type interfaceAt struct {
	namespace attachment.Namespace
	index     int
}

func placeOf(f Found) interfaceAt { return interfaceAt{f.Namespace, f.Live.Link.Index} }

func fileOf(n attachment.Namespace) file { return file{n.Device, n.Inode} }

func filesOf(problems []Problem) map[file]bool {
	all := map[file]bool{}
	for _, p := range problems {
		all[fileOf(p.Namespace)] = true
	}
	return all
}

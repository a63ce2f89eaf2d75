package adopt

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// look is a look at what runs on the node.
type look struct {
	host    *kernel.Namespace
	devices netstate.Devices
	cache   []located
	// records are those that there are, attached the names of the interfaces that the
	// operator calls attached.
	records  []checkpoint.Record
	attached []string
	// wants says which interfaces to look at.
	wants func(attachment.Namespace, netstate.LiveDevice) bool
}

// newLook opens the host. The caller closes it. torn are what the caches have that
// can't be read.
func newLook(opts Options, records []checkpoint.Record, wants func(attachment.Namespace, netstate.LiveDevice) bool) (l *look, torn []error, err error) {
	l = &look{wants: wants, records: records, attached: opts.Attached}
	entries, torn, err := cnicache.Read(opts.CacheDir)
	if err != nil {
		return nil, nil, err
	}
	l.cache = locate(entries)
	if l.host, err = kernel.OpenHost(); err != nil {
		return nil, nil, err
	}
	if l.devices, err = l.host.Devices(); err != nil {
		l.close()
		return nil, nil, err
	}
	return l, torn, nil
}

func (l *look) close() { l.host.Close() }

// locate returns the entries whose namespace is there.
func locate(entries []cnicache.Entry) []located {
	var all []located
	for _, e := range entries {
		if e.Netns == "" {
			continue
		}
		if device, inode, ok := sandbox.Identify(e.Netns); ok {
			all = append(all, located{Entry: e, device: device, inode: inode})
		}
	}
	return all
}

// inside is what a look into one sandbox has found.
type inside struct {
	found []Found
	// namespace is nil for a sandbox that has gone meanwhile.
	namespace *attachment.Namespace
	problems  []error
}

// all looks into every sandbox of the node.
func (l *look) all() (found []Found, alive []attachment.Namespace, problems []error, err error) {
	sandboxes, err := sandbox.List()
	if err != nil {
		return nil, nil, nil, err
	}
	results := make([]inside, len(sandboxes))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(sandboxes)) {
		workers.Go(func() {
			for i := range next {
				results[i] = l.into(sandboxes[i])
			}
		})
	}
	for i := range sandboxes {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, r := range results {
		found, problems = append(found, r.found...), append(problems, r.problems...)
		if r.namespace != nil {
			alive = append(alive, *r.namespace)
		}
	}
	return found, alive, problems, nil
}

func (l *look) into(s sandbox.Sandbox) inside {
	namespace, err := open(s)
	if err != nil {
		return inside{problems: []error{err}}
	}
	if namespace == nil {
		return inside{}
	}
	defer namespace.Close()
	id := namespace.Identity()
	own, err := namespace.Devices()
	if err != nil {
		return inside{namespace: &id, problems: []error{fmt.Errorf("%s: %w", id.Path, err)}}
	}
	result := inside{namespace: &id}
	for _, d := range own {
		if d.Name == "lo" || kernel.Unfinished(d.Name) || !l.wants(id, d) {
			continue
		}
		f, err := l.at(namespace, own, d.Name)
		switch {
		case err != nil:
			result.problems = append(result.problems, err)
		case f != nil:
			result.found = append(result.found, *f)
		}
	}
	return result
}

// open opens the sandbox by the first of its paths that still holds it. It returns
// nil when none does.
func open(s sandbox.Sandbox) (*kernel.Namespace, error) {
	for _, path := range s.Paths {
		namespace, err := kernel.Open(path)
		if errors.Is(err, kernel.ErrNoNamespace) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if id := namespace.Identity(); id.Device == s.Device && id.Inode == s.Inode {
			return namespace, nil
		}
		namespace.Close()
	}
	return nil, nil
}

// at looks at one interface. It returns nil when that is gone, is none that a checkpoint
// can hold, or is on nothing of the host's and in no cache.
func (l *look) at(namespace *kernel.Namespace, own netstate.Devices, name string) (*Found, error) {
	host := l.devices
	live, err := kernel.Capture(l.host, namespace, host, name, kernel.Everything)
	if err != nil && !isNone(err) {
		host, live, err = l.retry(namespace, name)
	}
	if isNone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", namespace.Path(), name, err)
	}
	f := &Found{Namespace: namespace.Identity(), Live: live, Beside: own}
	f.Owner = ownerOf(f.Namespace, live.Link, l.cache)
	if !f.Named {
		if !onHost(live) {
			return nil, nil
		}
		if f.Origin, f.Why, err = l.whose(namespace, own, *f); err != nil {
			return nil, err
		}
	}
	at := host
	if live.ParentsInSandbox {
		at = own
	}
	f.ParentDown = firstDown(live.Parents, at)
	if err := live.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %s can't be remembered: %w", namespace.Path(), name, err)
	}
	return f, nil
}

// isNone says that there is nothing that a checkpoint could hold.
func isNone(err error) bool {
	return errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrNoDevice)
}

// retry looks again, at the host too: devices come and go while they are looked at.
func (l *look) retry(namespace *kernel.Namespace, name string) (netstate.Devices, netstate.Interface, error) {
	host, err := l.host.Devices()
	if err != nil {
		return nil, netstate.Interface{}, err
	}
	live, err := kernel.Capture(l.host, namespace, host, name, kernel.Everything)
	if err == nil || isNone(err) {
		return host, live, err
	}
	if there, gone := namespace.Exists(name); gone == nil && !there {
		err = fmt.Errorf("%s: %w", name, kernel.ErrNoDevice)
	}
	return host, live, err
}

// onHost tells what a CNI plugin, or something like it, can have given the sandbox from
// what a process in there has made for itself: that is stacked on nothing of the host's,
// but for what it stacks on such an interface (whose). A NIC of its own is stacked on
// nothing.
func onHost(i netstate.Interface) bool {
	return len(i.Parents) > 0 && !i.ParentsInSandbox && i.Link.Kind != netstate.KindNIC
}

func firstDown(parents []netstate.Device, at netstate.Devices) string {
	for _, p := range parents {
		if d, ok := at.ByName(p.Name); ok && !d.Up {
			return p.Name
		}
	}
	return ""
}

// withoutRecord returns a function that says which interfaces have none of the
// records.
func withoutRecord(records []checkpoint.Record) func(attachment.Namespace, netstate.LiveDevice) bool {
	type file struct{ device, inode uint64 }
	byFile := map[file][]checkpoint.Record{}
	for _, r := range records {
		at := file{r.Namespace.Device, r.Namespace.Inode}
		byFile[at] = append(byFile[at], r)
	}
	return func(n attachment.Namespace, d netstate.LiveDevice) bool {
		f := Found{Namespace: n, Live: netstate.Interface{Link: netstate.Link{Name: d.Name, Index: d.Index, Kind: d.Kind}}}
		return !slices.ContainsFunc(byFile[file{n.Device, n.Inode}], func(r checkpoint.Record) bool { return isOf(r, f) })
	}
}

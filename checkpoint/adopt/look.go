package adopt

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// look is a look at what runs on the node.
type look struct {
	host    *kernel.Namespace
	devices netstate.Devices
	cache   []located
	// records are the checkpoints that exist. attached are the names of interfaces that the operator
	// calls attached.
	records  sandboxes
	attached []string
	// onlyNew skips interfaces that have a record.
	onlyNew bool
	// masquerades says that a rule of iptables for host access may be in the host.
	masquerades bool
}

// newLook opens the host, and the caller closes it. torn are the errors of entries in the caches
// that cannot be read.
func newLook(opts Options, records []checkpoint.Record, unreadable []checkpoint.Unreadable, onlyNew bool) (l *look, torn []error, err error) {
	l = &look{onlyNew: onlyNew, masquerades: len(opts.Store.Masquerades()) > 0, records: bySandbox(records, unreadable), attached: opts.Attached}
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

// locate returns the entries whose namespace exists.
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

// inside is the result of a look into one sandbox.
type inside struct {
	found []Found
	// namespace is nil if the sandbox has gone meanwhile.
	namespace *attachment.Namespace
	// listed says that devices has all devices of the sandbox.
	listed   bool
	devices  netstate.Devices
	problems []Problem
}

// all looks into the sandboxes of the node: into all of them, or only into some if that is not nil. The node
// that it returns has no records yet.
func (l *look) all(some map[file]bool) (node Node, problems []Problem, err error) {
	sandboxes, err := sandbox.List()
	if err != nil {
		return Node{}, nil, err
	}
	if some != nil {
		sandboxes = slices.DeleteFunc(sandboxes, func(s sandbox.Sandbox) bool { return !some[file{s.Device, s.Inode}] })
	}
	results := make([]inside, len(sandboxes))
	inparallel.Do(runtime.GOMAXPROCS(0), len(sandboxes), func(i int) { results[i] = l.into(sandboxes[i]) })
	node.Beside = map[attachment.Namespace]netstate.Devices{}
	for _, r := range results {
		node.Found, problems = append(node.Found, r.found...), append(problems, r.problems...)
		if r.namespace != nil {
			node.Alive = append(node.Alive, *r.namespace)
		}
		if r.listed {
			node.Beside[*r.namespace] = r.devices
		}
	}
	return node, problems, nil
}

func (l *look) into(s sandbox.Sandbox) inside {
	namespace, err := open(s)
	if err != nil {
		return inside{problems: []Problem{l.problem(attachment.Namespace{Device: s.Device, Inode: s.Inode}, "", err)}}
	}
	if namespace == nil {
		return inside{}
	}
	defer namespace.Close()
	id := namespace.Identity()
	room, err := l.enter(namespace)
	if err != nil {
		return inside{namespace: &id, problems: []Problem{l.problem(id, "", err)}}
	}
	result := inside{namespace: &id, listed: true, devices: room.own}
	for _, d := range room.own {
		if d.Name == "lo" || l.onlyNew && room.records.recorded(d.Index) {
			continue
		}
		f, err := room.at(d.Name)
		switch {
		case err != nil:
			result.problems = append(result.problems, l.problem(id, d.Name, err))
		case f != nil:
			result.found = append(result.found, *f)
		}
	}
	return result
}

// room is one sandbox that is looked into.
type room struct {
	*look
	namespace *kernel.Namespace
	// own are its devices, except those under construction.
	own     netstate.Devices
	records matched
	// extent is how much of an interface is read.
	extent kernel.Extent
	// stacks are what the sandbox has on the host's devices. It is nil before somebody asks.
	stacks map[stack][]neighbour
}

func (l *look) enter(namespace *kernel.Namespace) (*room, error) {
	id := namespace.Identity()
	own, err := namespace.Devices()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id.Path, err)
	}
	own = slices.DeleteFunc(own, kernel.Unfinished)
	return &room{look: l, namespace: namespace, own: own, records: l.records.in(id, own), extent: kernel.Everything}, nil
}

// open opens the sandbox by the first of its paths that still leads there. It returns nil if none
// does.
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

// at looks at one interface. It returns nil if the interface is gone, or if no checkpoint can hold
// it. It also returns nil if the interface is on no device of the host, is in no cache and is not
// recorded.
func (r *room) at(name string) (*Found, error) {
	host, path := r.devices, r.namespace.Path()
	live, err := kernel.Capture(r.host, r.namespace, host, name, r.extent)
	if err != nil && !isNone(err) {
		host, live, err = r.retry(name)
	}
	vf := new(kernel.VFError)
	if isNone(err) && !errors.As(err, &vf) {
		return nil, nil
	}
	if err != nil && !isNone(err) {
		return nil, fmt.Errorf("%s: %s: %w", path, name, err)
	}
	now, uptimeErr := boot.Uptime()
	if uptimeErr != nil {
		return nil, uptimeErr
	}
	f := &Found{Namespace: r.namespace.Identity(), Live: live, ReadAt: now, Beside: r.own}
	f.Owner = ownerOf(f.Namespace, live.Link, r.cache).byNeighbours(f.Namespace, r.records.records)
	if err != nil {
		if f.VF = vf.Error(); f.Named || r.records.recorded(live.Link.Index) {
			return f, nil
		}
		return nil, nil
	}
	if !f.Named && !r.records.recorded(live.Link.Index) {
		if !onHost(live) {
			return nil, nil
		}
		if f.Origin, f.Why, err = r.whose(*f); err != nil {
			return nil, err
		}
	}
	if _, readable := r.records.record(*f); !readable {
		if err := r.recall(f); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	at := host
	if live.ParentsInSandbox {
		at = r.own
	}
	f.ParentDown = firstDown(live.Parents, at)
	if err := live.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %s can't be remembered: %w", path, name, err)
	}
	return f, nil
}

// recall finds out which host access the interface has.
func (r *room) recall(f *Found) (err error) {
	lost := hostaccess.Lost{Devices: r.own, Interface: f.Live, Given: f.CNI.Addresses(), Masquerades: r.masquerades}
	f.access, err = hostaccess.Recall(r.host, r.namespace, lost)
	if errors.Is(err, hostaccess.ErrNoFilter) {
		f.note("it is remembered without masquerade: " + printable.Joined(err))
		return nil
	}
	return err
}

// isNone reports whether the error says that there is nothing for a checkpoint to hold.
func isNone(err error) bool {
	return errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrNoDevice)
}

// retry looks again, at the host too: devices can come and go during a look.
func (r *room) retry(name string) (netstate.Devices, netstate.Interface, error) {
	host, err := r.host.Devices()
	if err != nil {
		return nil, netstate.Interface{}, err
	}
	live, err := kernel.Capture(r.host, r.namespace, host, name, r.extent)
	if err == nil || isNone(err) {
		return host, live, err
	}
	if there, gone := r.namespace.Exists(name); gone == nil && !there {
		err = fmt.Errorf("%s: %w", name, kernel.ErrNoDevice)
	}
	return host, live, err
}

// onHost says that somebody outside gave the sandbox this interface, as a CNI plugin does. What a
// process in the sandbox makes for itself is not on a device of the host. The exception is what it
// stacks on a given interface (whose). A NIC of its own is on nothing.
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

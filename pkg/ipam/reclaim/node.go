package reclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Node is what a look at this node has found, for Judge. A holder that is newer than the look must not be
// judged by it.
type Node struct {
	bootID string
	// live are the network namespaces that are mounted or that have a process, the host's among them.
	live map[inode]live
	// having are the namespaces that have an address.
	having map[netip.Addr][]inode
	// kept are the namespaces that are not in live and that something else keeps, by inode.
	kept map[uint64]string
	// partial is why there may be more namespaces than were seen. It is empty if all were seen.
	partial string
	// further looks at what only a search finds. It is called once, when something is missing. nil: it was
	// called, or there is nothing to call.
	further func()
	// namespaces are the namespaces of containers that somebody else has recorded.
	namespaces map[string]attachment.Namespace
	// unreadable are the containers whose record cannot be read, and why.
	unreadable map[string]string
	// hosts are the namespaces of live that are not sandboxes.
	hosts map[inode]bool
	// closed names the namespaces that cannot be looked into, and says why.
	closed []string
	cache  cache
}

// inode tells namespaces apart at one moment.
type inode struct{ device, number uint64 }

// live is a namespace that is there.
type live struct {
	// name is for people.
	name string
	// cookie is 0 if it cannot be read.
	cookie uint64
}

// Sources are what a look reads besides the kernel.
type Sources struct {
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// Namespaces are the namespaces of containers that somebody else has recorded, by container ID.
	Namespaces map[string]attachment.Namespace
	// Unreadable are the containers whose record by somebody else cannot be read, and why.
	Unreadable map[string]string
	// AllProcesses says that the caller sees all processes of the node (sandbox.SeesAllProcesses).
	AllProcesses bool
}

// Look looks at this node. What cannot be looked at is no error, but makes verdicts Unknown. The error says
// that the processes of the node cannot be seen, or is that of ctx.
func Look(ctx context.Context, from Sources) (*Node, error) {
	bootID, err := boot.ID()
	if err != nil {
		return nil, err
	}
	if err := seesAll(); err != nil {
		return nil, err
	}
	n := &Node{
		bootID: bootID, live: map[inode]live{}, having: map[netip.Addr][]inode{}, kept: map[uint64]string{}, hosts: map[inode]bool{},
		namespaces: from.Namespaces, unreadable: from.Unreadable,
	}
	n.further = func() { n.lookFurther(ctx) }
	if !from.AllProcesses {
		n.partial = "not all processes of the node are seen here, in another PID namespace than the node's"
		n.closed = append(n.closed, n.partial)
	}
	kept, err := sandbox.Kept()
	if err != nil {
		return nil, err
	}
	n.lookAtHosts(ctx)
	if err := n.lookAtSandboxes(ctx); err != nil {
		return nil, err
	}
	if err := n.lookForKept(ctx, kept); err != nil {
		return nil, err
	}
	n.cache, err = readCache(from.CacheDir)
	return n, err
}

// lookForKept looks into the namespaces that something keeps and that have no mount and no process of their
// own. It notes those that cannot be looked into. left are the namespaces that were kept before the look.
// Newer ones are not judged, and those that have gone since do not matter.
func (n *Node) lookForKept(ctx context.Context, left map[uint64]sandbox.Keeper) error {
	for at := range n.live {
		delete(left, at.number)
	}
	const looks = 3 // Each look reads the open files of all processes.
	for range looks {
		if len(left) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		now, err := sandbox.Kept()
		if err != nil {
			return err
		}
		maps.DeleteFunc(left, func(number uint64, _ sandbox.Keeper) bool {
			keeper, still := now[number]
			return !still || n.lookIntoKept(ctx, number, keeper)
		})
	}
	for _, number := range slices.Sorted(maps.Keys(left)) {
		n.cannotLookInto(number, left[number].By)
	}
	return nil
}

// lookIntoKept says whether the namespace could be looked into.
func (n *Node) lookIntoKept(ctx context.Context, number uint64, k sandbox.Keeper) bool {
	for _, path := range k.Paths() {
		device, is, ok := sandbox.Identify(path)
		if ok && is == number && n.lookInto(ctx, sandbox.Sandbox{Device: device, Inode: number, Paths: []string{path}}, nameOfKept(k)) {
			return true
		}
	}
	return false
}

// Problems says what could not be looked at. Judge can add to it.
func (n *Node) Problems() []string {
	all := slices.Concat(n.closed, n.cache.problems)
	for _, id := range slices.Sorted(maps.Keys(n.unreadable)) {
		all = append(all, n.unreadable[id])
	}
	return all
}

// Has says whether the namespace had the address at the look, and is a sandbox's.
func (n *Node) Has(id attachment.Namespace, a netip.Addr) bool {
	at := inode{id.Device, id.Inode}
	return slices.Contains(n.having[a], at) && !n.hosts[at] && id.Cookie == n.live[at].cookie
}

// seesAll reports processes whose namespaces the caller may not see: their sandboxes would look gone.
func seesAll() error {
	hidden, err := sandbox.Hidden()
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		return fmt.Errorf("cannot see the network namespaces of %d processes, such as %d: run it as root on the node", len(hidden), hidden[0])
	}
	return nil
}

// lookAtHosts looks into the namespaces of PID 1 and of the caller, which are not sandboxes. Some systems
// let nobody see the namespace of PID 1.
func (n *Node) lookAtHosts(ctx context.Context) {
	for _, path := range []string{"/proc/1/ns/net", "/proc/self/ns/net"} {
		device, number, ok := sandbox.Identify(path)
		if ok {
			n.hosts[inode{device, number}] = true
		}
		if _, known := n.live[inode{device, number}]; ok && !known {
			n.lookInto(ctx, sandbox.Sandbox{Device: device, Inode: number, Paths: []string{path}}, "the host's network namespace")
		}
	}
}

// looks is how often a sandbox is looked for if none of its paths leads to it.
const looks = 10

// lookAtSandboxes looks into the sandboxes. If none of the paths of a sandbox leads to it, it looks again: the
// sandbox is gone, or has other paths by now.
func (n *Node) lookAtSandboxes(ctx context.Context) error {
	left, err := sandbox.List()
	for again := 1; err == nil && ctx.Err() == nil; again++ {
		left = n.lookIntoEach(ctx, left)
		if len(left) == 0 || again == looks {
			break
		}
		left, err = stillThere(left)
	}
	for _, s := range left {
		n.live[inode{s.Device, s.Inode}] = live{name: nameOf(s)}
		n.closed = append(n.closed, nameOf(s)+": none of its paths leads to it")
	}
	return errors.Join(err, ctx.Err())
}

// stillThere returns those that are there now, with the paths that they have now.
func stillThere(missed []sandbox.Sandbox) ([]sandbox.Sandbox, error) {
	all, err := sandbox.List()
	return slices.DeleteFunc(all, func(s sandbox.Sandbox) bool {
		return !slices.ContainsFunc(missed, func(m sandbox.Sandbox) bool { return m.Device == s.Device && m.Inode == s.Inode })
	}), err
}

func (n *Node) lookIntoEach(ctx context.Context, all []sandbox.Sandbox) (missed []sandbox.Sandbox) {
	for _, s := range all {
		if ctx.Err() == nil && !n.lookInto(ctx, s, nameOf(s)) {
			missed = append(missed, s)
		}
	}
	return missed
}

func nameOf(s sandbox.Sandbox) string { return "the network namespace at " + s.Paths[0] }

// lookInto notes the namespace with its cookie and addresses. It returns false if none of the paths leads to
// the namespace.
func (n *Node) lookInto(ctx context.Context, s sandbox.Sandbox, name string) bool {
	at := inode{s.Device, s.Inode}
	var failed error
	for _, path := range s.Paths {
		id, err := identity.Read(path)
		if err == nil && (id.Device != s.Device || id.Inode != s.Inode) {
			continue // Something else was mounted there meanwhile.
		}
		if err == nil {
			n.live[at] = live{name: name, cookie: id.Cookie}
			err = n.noteAddresses(id)
		}
		switch {
		case err == nil:
			return true
		case errors.Is(err, identity.ErrNoNamespace), errors.Is(err, attachment.ErrOtherNamespace):
		default:
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if failed == nil {
		return false
	}
	if _, known := n.live[at]; !known {
		n.live[at] = live{name: name}
	}
	n.closed = append(n.closed, fmt.Sprintf("%s: %v", name, failed))
	return true
}

// noteAddresses notes which addresses the namespace has.
func (n *Node) noteAddresses(id attachment.Namespace) error {
	namespace, err := kernel.Open(id.Path)
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := id.Same(namespace.Identity()); err != nil {
		return err
	}
	all, err := namespace.EveryAddress()
	if err != nil {
		return err
	}
	slices.SortFunc(all, netip.Addr.Compare)
	for _, a := range slices.Compact(all) {
		n.having[a] = append(n.having[a], inode{id.Device, id.Inode})
	}
	return nil
}

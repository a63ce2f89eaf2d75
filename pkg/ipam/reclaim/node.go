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

// Node is what a look at this node has found, for Judge. It is as old as the look: a holder that
// is newer must not be judged by it.
type Node struct {
	bootID string
	// live are the network namespaces that are mounted or that a process is in, the host's
	// among them.
	live map[inode]live
	// having are the namespaces that have an address.
	having map[netip.Addr][]inode
	// kept are the namespaces that something keeps and that are not in live, by inode.
	kept map[uint64]string
	// partial is why there may be more namespaces than are seen, empty if all are.
	partial string
	// further looks once at what only a search finds, when something is missed. nil: it was done, or
	// there is none.
	further func()
	// namespaces are those of containers that somebody else has recorded.
	namespaces map[string]attachment.Namespace
	// unreadable are the containers of which a record is there that can't be read, and why.
	unreadable map[string]string
	// hosts are the namespaces of live that are no sandbox's.
	hosts map[inode]bool
	// closed names the namespaces that can't be looked into, and why.
	closed []string
	cache  cache
}

// inode tells namespaces apart at one moment.
type inode struct{ device, number uint64 }

// live is a namespace that is there.
type live struct {
	// name is for people.
	name string
	// cookie is 0 where it can't be read.
	cookie uint64
}

// Sources are what a look is taken at besides the kernel.
type Sources struct {
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// Namespaces are those of containers, by their IDs, that somebody else has recorded.
	Namespaces map[string]attachment.Namespace
	// Unreadable are the containers of which somebody else has a record that can't be read, and why.
	Unreadable map[string]string
	// AllProcesses says that the processes that are seen here are all of the node's
	// (sandbox.SeesAllProcesses).
	AllProcesses bool
}

// Look looks at this node. What can't be looked at is no error, but makes verdicts Unknown. The
// error is that the processes of the node can't be seen, or that of ctx.
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

// lookForKept looks into the namespaces that something keeps without a mount or a process of their
// own, and notes those that can't be looked into. left are those that something kept before the
// look: what came since is not judged, and what has gone since is no more.
func (n *Node) lookForKept(ctx context.Context, left map[uint64]sandbox.Keeper) error {
	for at := range n.live {
		delete(left, at.number)
	}
	const looks = 3 // Each reads the open files of all processes.
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

// seesAll reports processes whose namespaces the caller may not see: a sandbox that is there would
// be called gone.
func seesAll() error {
	hidden, err := sandbox.Hidden()
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		return fmt.Errorf("can't see the network namespaces of %d processes, such as %d: this needs root on the node", len(hidden), hidden[0])
	}
	return nil
}

// lookAtHosts looks into the namespaces of PID 1 and of the caller, which are no sandboxes. Some
// don't let anybody see that of PID 1.
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

// looks is how often one is looked for that none of its paths leads to.
const looks = 10

// lookAtSandboxes looks into the others. One that none of its paths leads to is looked for again:
// it has gone, or has other paths by now.
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

// lookInto notes the namespace with its cookie and addresses. It returns false if it is at none of
// its paths.
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

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
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Node is what a look at this node has found, for Judge. A holder that is newer than the look must not be
// judged by it.
type Node struct {
	bootID string
	// live are the network namespaces that are mounted or that have a process, the host's among them.
	live map[inode]liveNamespace
	// holders are the namespaces that have an address.
	holders map[netip.Addr][]inode
	// keepers are the namespaces that are not in live and that something else keeps, by inode.
	keepers map[uint64]string
	// incomplete is why there may be more namespaces than were seen. It is empty if all were seen.
	incomplete string
	// searchOnce looks at what only a search finds. It is called once, when something is missing. nil: it was
	// called, or there is nothing to call.
	searchOnce func()
	// namespaces are the namespaces of containers that somebody else has recorded.
	namespaces map[string]attachment.Namespace
	// unreadable are the containers whose record cannot be read, and why.
	unreadable map[string]string
	// hosts are the namespaces of live that are not sandboxes.
	hosts map[inode]bool
	// uninspected names the namespaces that cannot be looked into, and says why.
	uninspected []string
	cache       Cache
}

// inode tells namespaces apart at one moment.
type inode attachment.NamespaceFile

// liveNamespace is a namespace that is there.
type liveNamespace struct {
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
func Look(ctx context.Context, sources Sources) (*Node, error) {
	bootID, err := boot.ID()
	if err != nil {
		return nil, err
	}
	if err := checkAllVisible(); err != nil {
		return nil, err
	}
	n := &Node{
		bootID: bootID, live: map[inode]liveNamespace{}, holders: map[netip.Addr][]inode{}, keepers: map[uint64]string{}, hosts: map[inode]bool{},
		namespaces: sources.Namespaces, unreadable: sources.Unreadable,
	}
	n.searchOnce = func() { n.searchNamespaces(ctx) }
	if !sources.AllProcesses {
		n.incomplete = "not all processes of the node are seen here, in another PID namespace than the node's"
		n.uninspected = append(n.uninspected, n.incomplete)
	}
	n.inspectHosts()
	if err := n.inspectSandboxes(ctx); err != nil {
		return nil, err
	}
	n.cache, err = ReadCache(sources.CacheDir)
	return n, err
}

// inspectKeeper says whether the namespace could be looked into.
func (n *Node) inspectKeeper(number uint64, k sandbox.NamespaceKeeper) bool {
	file, ok := sandbox.Identify(k.Path)
	return ok && file.Inode == number && n.inspect(sandbox.Sandbox{NamespaceFile: file, Paths: []string{k.Path}}, nameOfKept(k))
}

// Problems says what could not be looked at. Judge can add to it.
func (n *Node) Problems() []string {
	problems := slices.Concat(n.uninspected, n.cache.Problems)
	for _, id := range slices.Sorted(maps.Keys(n.unreadable)) {
		problems = append(problems, n.unreadable[id])
	}
	return problems
}

// Has says whether the namespace had the address at the look, and is a sandbox's.
func (n *Node) Has(id attachment.Namespace, a netip.Addr) bool {
	current, _ := n.find(id)
	key := inode(id.File())
	return slices.Contains(n.holders[a], key) && !n.hosts[key] && id.Cookie == current.cookie
}

// checkAllVisible reports processes whose namespaces the caller may not see: their sandboxes would look gone.
func checkAllVisible() error {
	hidden, err := sandbox.Hidden()
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		return fmt.Errorf("cannot see the network namespaces of %d processes, such as %d: run it as root on the node", len(hidden), hidden[0])
	}
	return nil
}

// inspectHosts looks into the namespaces of PID 1 and of the caller, which are not sandboxes. Some systems
// let nobody see the namespace of PID 1.
func (n *Node) inspectHosts() {
	for _, path := range []string{"/proc/1/ns/net", "/proc/self/ns/net"} {
		file, ok := sandbox.Identify(path)
		if ok {
			n.hosts[inode(file)] = true
		}
		if _, exists := n.live[inode(file)]; ok && !exists {
			n.inspect(sandbox.Sandbox{NamespaceFile: file, Paths: []string{path}}, "the host's network namespace")
		}
	}
}

// maxLooks is how often a sandbox is looked for if none of its paths leads to it.
const maxLooks = 10

// inspectSandboxes looks into the sandboxes. If none of the paths of a sandbox leads to it, it looks again: the
// sandbox is gone, or has other paths by now.
func (n *Node) inspectSandboxes(ctx context.Context) error {
	missed, err := sandbox.List()
	for attempt := 1; err == nil && ctx.Err() == nil; attempt++ {
		missed = slices.DeleteFunc(missed, func(s sandbox.Sandbox) bool { return ctx.Err() != nil || n.inspect(s, nameOf(s)) })
		if len(missed) == 0 || attempt == maxLooks {
			break
		}
		before := missed
		missed, err = sandbox.List()
		missed = slices.DeleteFunc(missed, func(s sandbox.Sandbox) bool {
			return !slices.ContainsFunc(before, func(m sandbox.Sandbox) bool { return m.NamespaceFile == s.NamespaceFile })
		})
	}
	for _, s := range missed {
		n.live[inode(s.NamespaceFile)] = liveNamespace{name: nameOf(s)}
		n.uninspected = append(n.uninspected, nameOf(s)+": none of its paths leads to it")
	}
	return errors.Join(err, ctx.Err())
}

func nameOf(s sandbox.Sandbox) string { return "the network namespace at " + s.Paths[0] }

// inspect notes the namespace with its cookie and addresses. It returns false if none of the paths leads to
// the namespace.
func (n *Node) inspect(s sandbox.Sandbox, name string) bool {
	namespace, err := kernel.OpenListed(s)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return false
	}
	key, found := inode(s.NamespaceFile), liveNamespace{name: name}
	if err == nil {
		defer namespace.Close()
		found.cookie = namespace.Identity().Cookie
		err = n.noteAddresses(key, namespace)
	}
	n.live[key] = found
	if err != nil {
		n.uninspected = append(n.uninspected, fmt.Sprintf("%s: %v", name, err))
	}
	return true
}

// noteAddresses notes which addresses the namespace has.
func (n *Node) noteAddresses(key inode, namespace *kernel.Namespace) error {
	addresses, err := namespace.AllAddresses()
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range slices.Compact(addresses) {
		n.holders[a] = append(n.holders[a], key)
	}
	return err
}

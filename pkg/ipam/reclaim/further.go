package reclaim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/wait"
)

// searchMissing is called when a namespace is missing. The first time, it looks further.
func (n *Node) searchMissing() {
	if further := n.searchOnce; further != nil {
		n.searchOnce = nil
		further()
	}
}

// searchNamespaces notes the namespaces that only a search finds. A namespace that only a socket keeps cannot be
// looked into; its cookie is known.
func (n *Node) searchNamespaces(ctx context.Context) {
	found, blind, err := sandbox.Search(ctx)
	const looks = 5
	for attempt := 1; ; attempt++ {
		if blind != "" || err != nil {
			n.noteIncomplete(blind, err)
		}
		n.inspectFound(found, attempt == looks)
		if len(found) == 0 || attempt == looks || err != nil {
			break
		}
		// Most are gone at the next look: the socket of a plugin keeps its sandbox for a moment.
		wait.Sleep(ctx, pause) // Search says that ctx is done.
		wanted := slices.Collect(maps.Keys(found))
		found, blind, err = sandbox.Search(ctx, wanted...)
		maps.DeleteFunc(found, func(number uint64, _ sandbox.NamespaceKeeper) bool { return !slices.Contains(wanted, number) })
	}
	for _, number := range slices.Sorted(maps.Keys(found)) {
		n.noteUninspected(number, found[number].Description)
	}
}

// pause is the time between two looks at what a socket keeps.
const pause = 200 * time.Millisecond

// inspectFound notes the namespaces that it can look into, and removes them from found. A namespace that only a
// socket keeps is noted at the last look.
func (n *Node) inspectFound(found map[uint64]sandbox.NamespaceKeeper, last bool) {
	for id := range n.live {
		delete(found, id.Inode)
	}
	maps.DeleteFunc(found, func(number uint64, k sandbox.NamespaceKeeper) bool {
		if _, ok := n.keepers[number]; ok {
			return true
		}
		if k.Path != "" {
			return n.inspectKeeper(number, k)
		}
		if !last {
			return false
		}
		name := nameOfKept(k)
		n.live[inode{Device: k.Device, Inode: number}] = liveNamespace{name: name, cookie: k.Cookie}
		n.uninspected = append(n.uninspected, name+": nothing leads to it")
		return true
	})
}

// noteIncomplete notes why there may be more namespaces than the search has found.
func (n *Node) noteIncomplete(blind string, err error) {
	if err != nil {
		blind = err.Error()
	}
	if n.incomplete == "" {
		n.incomplete = blind
		n.uninspected = append(n.uninspected, blind)
	}
}

// noteUninspected notes a namespace that is there, and to which nothing leads.
func (n *Node) noteUninspected(number uint64, keeper string) {
	n.keepers[number] = keeper
	n.uninspected = append(n.uninspected, fmt.Sprintf("the network namespace net:[%d], which %s keeps: nothing leads to it", number, keeper))
}

func nameOfKept(k sandbox.NamespaceKeeper) string {
	return "the network namespace that " + k.Description + " keeps"
}

package reclaim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// missed is called when a namespace is missing. The first time, it looks further.
func (n *Node) missed() {
	if further := n.further; further != nil {
		n.further = nil
		further()
	}
}

// lookFurther notes the namespaces that only a search finds. A namespace that only a socket keeps cannot be
// looked into; its cookie is known.
func (n *Node) lookFurther(ctx context.Context) {
	found, blind, err := sandbox.Search(ctx)
	const looks = 5
	for again := 1; ; again++ {
		if blind != "" || err != nil {
			n.cannotSearch(blind, err)
		}
		n.noteFound(ctx, found, again == looks)
		if len(found) == 0 || again == looks || err != nil {
			break
		}
		// Most are gone at the next look: the socket of a plugin keeps its sandbox for a moment.
		time.Sleep(pause)
		wanted := slices.Collect(maps.Keys(found))
		found, blind, err = sandbox.Search(ctx, wanted...)
		maps.DeleteFunc(found, func(number uint64, _ sandbox.Keeper) bool { return !slices.Contains(wanted, number) })
	}
	for _, number := range slices.Sorted(maps.Keys(found)) {
		n.cannotLookInto(number, found[number].By)
	}
}

// pause is the time between two looks at what a socket keeps.
const pause = 200 * time.Millisecond

// noteFound notes the namespaces that it can look into, and removes them from found. A namespace that only a
// socket keeps is noted at the last look.
func (n *Node) noteFound(ctx context.Context, found map[uint64]sandbox.Keeper, last bool) {
	for at := range n.live {
		delete(found, at.number)
	}
	maps.DeleteFunc(found, func(number uint64, k sandbox.Keeper) bool {
		if _, known := n.kept[number]; known {
			return true
		}
		if k.Path != "" {
			return n.lookIntoKept(ctx, number, k)
		}
		if !last {
			return false
		}
		name := nameOfKept(k)
		n.live[inode{k.Device, number}] = live{name: name, cookie: k.Cookie}
		n.closed = append(n.closed, name+": nothing leads to it")
		return true
	})
}

// cannotSearch notes why there may be more namespaces than the search has found.
func (n *Node) cannotSearch(blind string, err error) {
	if err != nil {
		blind = err.Error()
	}
	if n.partial == "" {
		n.partial = blind
		n.closed = append(n.closed, blind)
	}
}

// cannotLookInto notes a namespace that is there, and to which nothing leads.
func (n *Node) cannotLookInto(number uint64, by string) {
	n.kept[number] = by
	n.closed = append(n.closed, fmt.Sprintf("the network namespace net:[%d], which %s keeps: nothing leads to it", number, by))
}

func nameOfKept(k sandbox.Keeper) string { return "the network namespace that " + k.By + " keeps" }

// lookAgain looks once more for the namespaces of the holders that will be reclaimed, right before that. A
// namespace that short-lived processes hand on can be missed once. A holder whose namespace is found, or may
// be there, is kept.
func lookAgain(ctx context.Context, found []Finding, bootID string) {
	var wanted []uint64
	for _, f := range found {
		if f.State == ToReclaim && f.inNamespace(bootID) {
			wanted = append(wanted, f.judged.Inode)
		}
	}
	if len(wanted) == 0 {
		return
	}
	keepers, blind, err := sandbox.Search(ctx, wanted...)
	if err != nil {
		blind = err.Error()
	}
	for i, f := range found {
		if f.State != ToReclaim || !f.inNamespace(bootID) {
			continue
		}
		if by, there := keepers[f.judged.Inode]; there && !by.KeepsAnother(f.judged) {
			found[i].State, found[i].Judgement = Kept, f.with(Unknown, "at a second look %s keeps its network namespace, or one that has its inode now", by.By)
		} else if !there && blind != "" {
			found[i].State, found[i].Judgement = Kept, f.with(Unknown, "a second look was not possible: %s", blind)
		}
	}
}

// inNamespace says whether the verdict is about a namespace of this boot.
func (f Finding) inNamespace(bootID string) bool {
	return f.judged != (attachment.Namespace{}) && f.judged.Inode != 0 && f.judged.BootID == bootID
}

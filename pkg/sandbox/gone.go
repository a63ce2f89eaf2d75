package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/wait"
)

// Evidence is a state and what shows it, for people.
type Evidence struct {
	Verdict Verdict
	Reason  string
	// KeptBy is who keeps a namespace that is not at its path any more. It is empty for one that is there.
	KeptBy string
	// TimedOut says that it is unknown because there was no time to look for the namespace to the end.
	TimedOut bool
}

// ProvenGone returns those of the network namespaces that are proven gone, as Prove does.
func ProvenGone(ctx context.Context, allProcesses bool, namespaces ...attachment.Namespace) map[attachment.Namespace]bool {
	proven := map[attachment.Namespace]bool{}
	for ns, e := range Prove(ctx, allProcesses, namespaces...) {
		if e.Verdict == VerdictGone {
			proven[ns] = true
		}
	}
	return proven
}

// Prove says of each of the network namespaces whether it is there. One is gone if it is of an
// earlier boot, if another one has its inode now, or if no mount, process or socket of the node
// keeps it. What cannot be found out before ctx is done is unknown. allProcesses says that the processes
// that are seen here are all of the node's (SeesAllProcesses). /proc is read only if a namespace
// is not at its path any more.
func Prove(ctx context.Context, allProcesses bool, namespaces ...attachment.Namespace) map[attachment.Namespace]Evidence {
	proven := map[attachment.Namespace]Evidence{}
	bootID, err := boot.ID()
	var lost []attachment.Namespace
	for _, ns := range namespaces {
		e := Evidence{Verdict: VerdictUnknown, Reason: fmt.Sprintf("the boot ID cannot be read: %v", err)}
		if err == nil {
			e = checkPath(ns, bootID)
		}
		if e == (Evidence{}) {
			lost = append(lost, ns)
			continue
		}
		proven[ns] = e
	}
	searchLost(ctx, allProcesses, lost, proven)
	return proven
}

// searchLost looks for the namespaces that are not at their paths any more. A thread can be in a namespace for a moment, to
// look into it, or on its way out. What kept a namespace can go before it is asked whether this is the one, or another
// with its inode. So what only a thread keeps, and what went meanwhile, is looked for again.
func searchLost(ctx context.Context, allProcesses bool, lost []attachment.Namespace, proven map[attachment.Namespace]Evidence) {
	for tries := 3; len(lost) > 0; tries-- {
		lost = searchOnce(ctx, allProcesses, lost, proven)
		if tries == 1 || len(lost) == 0 {
			return
		}
		if !wait.Sleep(ctx, threadInterval) {
			return
		}
	}
}

// threadInterval is how long a thread may be in a namespace that it only looks into.
const threadInterval = 100 * time.Millisecond

// searchOnce is searchLost for one look. It returns the namespaces to look for again.
func searchOnce(ctx context.Context, allProcesses bool, lost []attachment.Namespace, proven map[attachment.Namespace]Evidence) (pending []attachment.Namespace) {
	found, blind := map[uint64]NamespaceKeeper{}, hiddenReason(allProcesses)
	late := false
	if blind == "" {
		var inodes []uint64
		for _, ns := range lost {
			inodes = append(inodes, ns.Inode)
		}
		var err error
		if found, blind, err = Search(ctx, inodes...); err != nil {
			late, blind = errors.Is(err, context.DeadlineExceeded), SearchError(err) // What was found until then is there all the same.
		}
	}
	for _, ns := range lost {
		keeper, kept := found[ns.Inode]
		switch {
		case kept && keeper.keepsAnother(ns):
			proven[ns] = Evidence{Verdict: VerdictGone, Reason: fmt.Sprintf("%s keeps another namespace, which has its inode now", keeper.Description)}
		case kept:
			proven[ns] = Evidence{Verdict: VerdictAlive, Reason: fmt.Sprintf("nothing leads to it at %s, but %s keeps it", ns.Path, keeper.Description), KeptBy: keeper.Description}
			if keeper.isThread() || keeper.hasMoved(ns.Inode) {
				pending = append(pending, ns)
			}
		case blind != "":
			proven[ns] = Evidence{Verdict: VerdictUnknown, Reason: fmt.Sprintf("it is not at %s, and what keeps it elsewhere cannot be seen: %s", ns.Path, blind), TimedOut: late}
		default:
			proven[ns] = Evidence{Verdict: VerdictGone, Reason: "no mount, process or socket of the node keeps it"}
		}
	}
	return pending
}

// SearchError is the error of a search in words: one that had no time to end did not fail.
func SearchError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the search did not end in time"
	}
	return err.Error()
}

// hiddenReason says why not all processes are seen, empty if they are.
func hiddenReason(allProcesses bool) string {
	if !allProcesses {
		return "the processes of the node are not seen from here: run it outside of a container, or in the host's PID namespace"
	}
	hidden, err := Hidden()
	switch {
	case err != nil:
		return err.Error()
	case len(hidden) > 0:
		return fmt.Sprintf("process %d may not be looked at", hidden[0])
	}
	return ""
}

// checkPath says what the path of the namespace tells. It is empty where the namespace has to be
// looked for elsewhere.
func checkPath(recorded attachment.Namespace, bootID string) Evidence {
	switch {
	case recorded.BootID == "":
		return Evidence{Verdict: VerdictUnknown, Reason: "no boot was recorded"}
	case recorded.BootID != bootID:
		return Evidence{Verdict: VerdictGone, Reason: "it is of an earlier boot"}
	case recorded.Inode == 0:
		return Evidence{Verdict: VerdictUnknown, Reason: "no namespace was recorded"}
	}
	live, err := kernelid.Read(recorded.Path)
	switch {
	case err == nil && recorded.Same(live) == nil:
		return Evidence{Verdict: VerdictAlive, Reason: "it is at " + recorded.Path}
	case err == nil && inodeReused(recorded, live):
		return Evidence{Verdict: VerdictGone, Reason: fmt.Sprintf("another namespace, at %s, has its inode now", recorded.Path)}
	case err == nil, errors.Is(err, kernelid.ErrNoNamespace):
		return Evidence{}
	}
	return Evidence{Verdict: VerdictUnknown, Reason: fmt.Sprintf("%s cannot be read: %v", recorded.Path, err)}
}

// inodeReused says that another namespace has the inode by now.
func inodeReused(recorded, live attachment.Namespace) bool {
	return live.File() == recorded.File() && live.Cookie != 0 && recorded.Cookie != 0 && live.Cookie != recorded.Cookie
}

// keepsAnother says that another namespace, which has the inode of this one, is kept: this one
// is gone then.
func (k NamespaceKeeper) keepsAnother(recorded attachment.Namespace) bool {
	if k.Path == "" {
		return inodeReused(recorded, attachment.Namespace{Device: k.Device, Inode: recorded.Inode, Cookie: k.Cookie})
	}
	live, err := kernelid.Read(k.Path)
	return err == nil && inodeReused(recorded, live)
}

// hasMoved says that the path of the keeper does not lead to the inode any more.
func (k NamespaceKeeper) hasMoved(inode uint64) bool {
	if k.Path == "" {
		return false // A socket told all about itself when it was found.
	}
	live, err := kernelid.Read(k.Path)
	return errors.Is(err, kernelid.ErrNoNamespace) || err == nil && live.Inode != inode
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// State says whether a network namespace is there.
type State string

// The states. Only IsGone is a proof that nobody is in the namespace.
const (
	IsGone    State = "gone"
	IsAlive   State = "alive"
	IsUnknown State = "unknown"
)

// Evidence is a state and what shows it, for people.
type Evidence struct {
	State State
	Why   string
	// KeptBy is who keeps a namespace that is not at its path any more. It is empty for one that is there.
	KeptBy string
	// Late says that it is unknown because there was no time to look for the namespace to the end.
	Late bool
}

// Gone returns those of the network namespaces that are proven gone, as Prove does.
func Gone(ctx context.Context, all bool, were ...attachment.Namespace) map[attachment.Namespace]bool {
	gone := map[attachment.Namespace]bool{}
	for was, e := range Prove(ctx, all, were...) {
		if e.State == IsGone {
			gone[was] = true
		}
	}
	return gone
}

// Prove says of each of the network namespaces whether it is there. One is gone if it is of an
// earlier boot, if another one has its inode now, or if no mount, process or socket of the node
// keeps it. What cannot be found out before ctx is done is unknown. all says that the processes
// that are seen here are all of the node's (SeesAllProcesses). /proc is read only if a namespace
// is not at its path any more.
func Prove(ctx context.Context, all bool, were ...attachment.Namespace) map[attachment.Namespace]Evidence {
	proven := map[attachment.Namespace]Evidence{}
	bootID, err := boot.ID()
	var lost []attachment.Namespace
	for _, was := range were {
		e := Evidence{State: IsUnknown, Why: fmt.Sprintf("the boot ID cannot be read: %v", err)}
		if err == nil {
			e = atItsPath(was, bootID)
		}
		if e == (Evidence{}) {
			lost = append(lost, was)
			continue
		}
		proven[was] = e
	}
	lookFor(ctx, all, lost, proven)
	return proven
}

// lookFor looks for the namespaces that are not at their paths any more. A thread can be in a namespace for a moment, to
// look into it, or on its way out. What kept a namespace can go before it is asked whether this is the one, or another
// with its inode. So what only a thread keeps, and what went meanwhile, is looked for again.
func lookFor(ctx context.Context, all bool, lost []attachment.Namespace, proven map[attachment.Namespace]Evidence) {
	for tries := 3; len(lost) > 0; tries-- {
		lost = lookOnce(ctx, all, lost, proven)
		if tries == 1 || len(lost) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(moment):
		}
	}
}

// moment is how long a thread may be in a namespace that it only looks into.
const moment = 100 * time.Millisecond

// lookOnce is lookFor for one look. It returns the namespaces to look for again.
func lookOnce(ctx context.Context, all bool, lost []attachment.Namespace, proven map[attachment.Namespace]Evidence) (again []attachment.Namespace) {
	found, blind := map[uint64]Keeper{}, notAll(all)
	late := false
	if blind == "" {
		var inodes []uint64
		for _, was := range lost {
			inodes = append(inodes, was.Inode)
		}
		var err error
		if found, blind, err = Search(ctx, inodes...); err != nil {
			late, blind = errors.Is(err, context.DeadlineExceeded), Late(err) // What was found until then is there all the same.
		}
	}
	for _, was := range lost {
		keeper, kept := found[was.Inode]
		switch {
		case kept && keeper.KeepsAnother(was):
			proven[was] = Evidence{State: IsGone, Why: fmt.Sprintf("%s keeps another namespace, which has its inode now", keeper.By)}
		case kept:
			proven[was] = Evidence{State: IsAlive, Why: fmt.Sprintf("nothing leads to it at %s, but %s keeps it", was.Path, keeper.By), KeptBy: keeper.By}
			if keeper.isThread() || keeper.hasLeft(was.Inode) {
				again = append(again, was)
			}
		case blind != "":
			proven[was] = Evidence{State: IsUnknown, Why: fmt.Sprintf("it is not at %s, and what keeps it elsewhere cannot be seen: %s", was.Path, blind), Late: late}
		default:
			proven[was] = Evidence{State: IsGone, Why: "no mount, process or socket of the node keeps it"}
		}
	}
	return again
}

// Late is the error of a search in words: one that had no time to end did not fail.
func Late(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the search did not end in time"
	}
	return err.Error()
}

// notAll says why not all processes are seen, empty if they are.
func notAll(all bool) string {
	if !all {
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

// atItsPath says what the path of the namespace tells. It is empty where the namespace has to be
// looked for elsewhere.
func atItsPath(was attachment.Namespace, bootID string) Evidence {
	switch {
	case was.BootID == "":
		return Evidence{State: IsUnknown, Why: "no boot was recorded"}
	case was.BootID != bootID:
		return Evidence{State: IsGone, Why: "it is of an earlier boot"}
	case was.Inode == 0:
		return Evidence{State: IsUnknown, Why: "no namespace was recorded"}
	}
	is, err := kernelid.Read(was.Path)
	switch {
	case err == nil && was.Same(is) == nil:
		return Evidence{State: IsAlive, Why: "it is at " + was.Path}
	case err == nil && replaced(was, is):
		return Evidence{State: IsGone, Why: fmt.Sprintf("another namespace, at %s, has its inode now", was.Path)}
	case err == nil, errors.Is(err, kernelid.ErrNoNamespace):
		return Evidence{}
	}
	return Evidence{State: IsUnknown, Why: fmt.Sprintf("%s cannot be read: %v", was.Path, err)}
}

// replaced says that another namespace has the inode by now.
func replaced(was, is attachment.Namespace) bool {
	return is.Device == was.Device && is.Inode == was.Inode && is.Cookie != 0 && was.Cookie != 0 && is.Cookie != was.Cookie
}

// KeepsAnother says that another namespace, which has the inode of this one, is kept: this one
// is gone then.
func (k Keeper) KeepsAnother(was attachment.Namespace) bool {
	if k.Path == "" {
		return replaced(was, attachment.Namespace{Device: k.Device, Inode: was.Inode, Cookie: k.Cookie})
	}
	is, err := kernelid.Read(k.Path)
	return err == nil && replaced(was, is)
}

// hasLeft says that the path of the keeper does not lead to the inode any more.
func (k Keeper) hasLeft(inode uint64) bool {
	if k.Path == "" {
		return false // A socket told all about itself when it was found.
	}
	is, err := kernelid.Read(k.Path)
	return errors.Is(err, kernelid.ErrNoNamespace) || err == nil && is.Inode != inode
}

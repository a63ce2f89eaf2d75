package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Fate is what became of a network namespace.
type Fate struct {
	// Gone says that the namespace is proven gone.
	Gone bool
	// KeptBy says who keeps a namespace that is not at its path any more, for people. It is empty
	// where nobody was found.
	KeptBy string
	// Unknown says why nothing is proven, empty if the fate is known.
	Unknown string
}

// Gone returns those of the network namespaces that are proven gone: of an earlier boot, or another one
// has the inode by now, or no mount, process or socket of the node keeps it. What can't be known before
// ctx is done is not gone. all says that the processes that are seen here are all of the node's
// (SeesAllProcesses). /proc is read only if a namespace is not at its path any more.
func Gone(ctx context.Context, all bool, were ...attachment.Namespace) map[attachment.Namespace]bool {
	gone := map[attachment.Namespace]bool{}
	for was, fate := range Fates(ctx, all, were...) {
		if fate.Gone {
			gone[was] = true
		}
	}
	return gone
}

// Fates returns what became of each of the network namespaces: Gone has the terms. The zero Fate is that
// of one that is at its path.
func Fates(ctx context.Context, all bool, were ...attachment.Namespace) map[attachment.Namespace]Fate {
	fates := map[attachment.Namespace]Fate{}
	bootID, err := boot.ID()
	var lost []attachment.Namespace
	for _, was := range were {
		if err != nil {
			fates[was] = Fate{Unknown: err.Error()}
			continue
		}
		fate, isLost := atItsPath(was, bootID)
		fates[was] = fate
		if isLost {
			lost = append(lost, was)
		}
	}
	if len(lost) == 0 {
		return fates
	}
	found, blind := searchFor(ctx, all, lost)
	for _, was := range lost {
		keeper, kept := found[was.Inode]
		switch {
		case kept && keeper.KeepsAnother(was), !kept && blind == "":
			fates[was] = Fate{Gone: true}
		case kept:
			fates[was] = Fate{KeptBy: keeper.By}
		default:
			fates[was] = Fate{Unknown: blind}
		}
	}
	return fates
}

// searchFor looks for who keeps the namespaces. blind is why there may be others who do.
func searchFor(ctx context.Context, all bool, lost []attachment.Namespace) (found map[uint64]Keeper, blind string) {
	if !all {
		return nil, "the processes of the node are not seen from here: run it outside of a container, or in the host's PID namespace"
	}
	hidden, err := Hidden()
	if err != nil {
		return nil, err.Error()
	}
	if len(hidden) > 0 {
		return nil, fmt.Sprintf("the namespaces of processes can't be seen from here, such as that of process %d", hidden[0])
	}
	var inodes []uint64
	for _, was := range lost {
		inodes = append(inodes, was.Inode)
	}
	found, blind, err = Search(ctx, inodes...)
	if err != nil {
		return nil, err.Error()
	}
	return found, blind
}

// atItsPath says what the path of the namespace tells. lost says that it is to be looked for elsewhere.
func atItsPath(was attachment.Namespace, bootID string) (fate Fate, lost bool) {
	switch {
	case was.BootID == "":
		return Fate{Unknown: "its boot was not recorded"}, false
	case was.BootID != bootID:
		return Fate{Gone: true}, false
	case was.Inode == 0:
		return Fate{Unknown: "its inode was not recorded"}, false
	}
	is, err := kernelid.Read(was.Path)
	switch {
	case err == nil && was.Same(is) == nil:
		return Fate{}, false
	case err == nil && replaced(was, is):
		return Fate{Gone: true}, false
	case err == nil || errors.Is(err, kernelid.ErrNoNamespace):
		return Fate{}, true
	}
	return Fate{Unknown: err.Error()}, false
}

// replaced says that another namespace has the inode by now.
func replaced(was, is attachment.Namespace) bool {
	return is.Device == was.Device && is.Inode == was.Inode && is.Cookie != 0 && was.Cookie != 0 && is.Cookie != was.Cookie
}

// KeepsAnother says that what is kept with the inode of the namespace is another one, and so that
// one gone.
func (k Keeper) KeepsAnother(was attachment.Namespace) bool {
	if k.Path == "" {
		return replaced(was, attachment.Namespace{Device: k.Device, Inode: was.Inode, Cookie: k.Cookie})
	}
	is, err := kernelid.Read(k.Path)
	return err == nil && replaced(was, is)
}

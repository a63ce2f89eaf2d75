package sandbox

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Gone returns those of the network namespaces that are proven gone: of an earlier boot, or another one
// has the inode by now, or no mount, process or socket of the node keeps it. What can't be known before
// ctx is done is not gone. all says that the processes that are seen here are all of the node's
// (SeesAllProcesses). /proc is read only if a namespace is not at its path any more.
func Gone(ctx context.Context, all bool, were ...attachment.Namespace) map[attachment.Namespace]bool {
	gone := map[attachment.Namespace]bool{}
	bootID, err := boot.ID()
	if err != nil {
		return gone
	}
	var lost []attachment.Namespace
	for _, was := range were {
		isGone, isLost := atItsPath(was, bootID)
		if isGone {
			gone[was] = true
		}
		if isLost {
			lost = append(lost, was)
		}
	}
	if len(lost) == 0 || !all {
		return gone
	}
	if hidden, err := Hidden(); err != nil || len(hidden) > 0 {
		return gone
	}
	var inodes []uint64
	for _, was := range lost {
		inodes = append(inodes, was.Inode)
	}
	found, blind, err := Search(ctx, inodes...)
	if err != nil {
		return gone
	}
	for _, was := range lost {
		keeper, kept := found[was.Inode]
		if kept && keeper.KeepsAnother(was) || !kept && blind == "" {
			gone[was] = true
		}
	}
	return gone
}

// atItsPath says what the path of the namespace tells: that it is gone, or that it is to be looked for
// elsewhere.
func atItsPath(was attachment.Namespace, bootID string) (gone, lost bool) {
	switch {
	case was.BootID == "":
		return false, false
	case was.BootID != bootID:
		return true, false
	case was.Inode == 0:
		return false, false
	}
	is, err := kernelid.Read(was.Path)
	switch {
	case err == nil && was.Same(is) == nil:
		return false, false
	case err == nil && replaced(was, is):
		return true, false
	}
	return false, err == nil || errors.Is(err, kernelid.ErrNoNamespace)
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

package sandbox

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Gone says whether the network namespace is proven gone: it is of an earlier boot, another one has
// its inode by now, or no mount, process or socket of the node keeps it. What can't be known is not
// gone. all says that the processes that are seen here are all of the node's (SeesAllProcesses).
// /proc is read only if the namespace is not at its path any more.
func Gone(ctx context.Context, was attachment.Namespace, all bool) bool {
	bootID, err := boot.ID()
	if err != nil || was.BootID == "" {
		return false
	}
	if was.BootID != bootID {
		return true
	}
	if was.Inode == 0 {
		return false
	}
	is, err := kernelid.Read(was.Path)
	switch {
	case err == nil && was.Same(is) == nil:
		return false
	case err == nil && replaced(was, is):
		return true
	case err != nil && !errors.Is(err, kernelid.ErrNoNamespace), !all:
		return false
	}
	hidden, err := Hidden()
	if err != nil || len(hidden) > 0 {
		return false
	}
	found, blind, err := Search(ctx, was.Inode)
	if err != nil {
		return false
	}
	if keeper, kept := found[was.Inode]; kept {
		return keeper.KeepsAnother(was)
	}
	return blind == ""
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

package identity

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// ErrNoNamespace says that the path does not exist or holds no network namespace.
var ErrNoNamespace = errors.New("no network namespace")

// Resolve returns the path without the symbolic links in its directory. containerd and CRI-O name namespaces below
// /var/run, which is a link to /run since FHS 3.0. A container that has /run/netns of the node may lack that link, so Resolve
// does without it. The last element stays: it is what a runtime has mounted.
func Resolve(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	if below, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + below
	}
	return path
}

// Open opens the network namespace at path, or at the resolved path if the directory is not here. The caller closes the
// descriptor. The identity has the path that was opened. It lacks the cookie, which is only known inside the namespace.
// Open returns ErrNoNamespace if there is no namespace.
func Open(path string) (fd int, _ attachment.Namespace, err error) {
	open := func(path string) (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) }
	fd, err = open(path)
	if errors.Is(err, unix.ENOENT) {
		resolved := Resolve(path)
		if resolvedFD, failed := open(resolved); failed == nil {
			fd, err, path = resolvedFD, nil, resolved
		}
	}
	if errors.Is(err, unix.EACCES) {
		// The kernel may answer so for a process that is about to end. The second time, the process
		// is gone.
		fd, err = open(path)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESRCH) {
		return -1, attachment.Namespace{}, fmt.Errorf("%s: %w: it does not exist", path, ErrNoNamespace)
	}
	if errors.Is(err, unix.EACCES) {
		err = privilege.Missing(err, "CAP_SYS_PTRACE") // The path is of a process that has more privileges.
	}
	if err != nil {
		return -1, attachment.Namespace{}, fmt.Errorf("open namespace %s: %w", path, err)
	}
	id, err := identify(fd, path)
	if err != nil {
		_ = unix.Close(fd)
		return -1, attachment.Namespace{}, err
	}
	return fd, id, nil
}

// identify returns the identity of the open namespace, without its cookie. The path holds a namespace
// only if it is an nsfs file of a network namespace. When a bind mount goes, the plain file that
// carried it stays behind.
func identify(fd int, path string) (attachment.Namespace, error) {
	id := attachment.Namespace{Path: path}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return id, fmt.Errorf("stat %s: %w", path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return id, fmt.Errorf("%s: %w: it is a plain file", path, ErrNoNamespace)
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return id, fmt.Errorf("%s: %w: it is a namespace of another type", path, ErrNoNamespace)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return id, fmt.Errorf("stat %s: %w", path, err)
	}
	bootID, err := boot.ID()
	if err != nil {
		return id, err
	}
	id.Device, id.Inode, id.BootID = st.Dev, st.Ino, bootID
	return id, nil
}

// Read returns the identity of the network namespace at path. The cookie is 0 if the caller may not
// enter the namespace. Read returns ErrNoNamespace if there is no namespace.
func Read(path string) (attachment.Namespace, error) {
	fd, id, err := Open(path)
	if err != nil {
		return id, err
	}
	defer func() { _ = unix.Close(fd) }()
	id.Cookie = cookie(fd)
	return id, nil
}

// cookie returns the cookie (SO_NETNS_COOKIE) of the namespace, or 0 if it cannot be read. It makes
// a socket in the namespace.
func cookie(fd int) (value uint64) {
	_ = Inside(fd, "", func() error {
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(socket) }()
		value, err = unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return value
}

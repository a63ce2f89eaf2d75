package identity

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// ErrNoNamespace says that the path does not exist or holds no network namespace.
var ErrNoNamespace = errors.New("no network namespace")

// Open opens the network namespace at path. The caller closes the descriptor.
// ErrNoNamespace: there is none.
func Open(path string) (fd int, _ attachment.Namespace, err error) {
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		// So the kernel answers for a process that ends right now. The next time it is gone.
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESRCH) {
		return -1, attachment.Namespace{}, fmt.Errorf("%s: %w: it does not exist", path, ErrNoNamespace)
	}
	if errors.Is(err, unix.EACCES) {
		err = privilege.Missing(err, "CAP_SYS_PTRACE") // The file is a process's, which has more privileges.
	}
	if err != nil {
		return -1, attachment.Namespace{}, fmt.Errorf("open namespace %s: %w", path, err)
	}
	id, err := of(fd, path)
	if err != nil {
		_ = unix.Close(fd)
		return -1, attachment.Namespace{}, err
	}
	return fd, id, nil
}

// of returns what makes the open namespace that which it is, but its cookie. A path that
// holds anything but an nsfs file of a network namespace is no namespace: the file that
// carried a bind mount stays behind when the mount goes.
func of(fd int, path string) (attachment.Namespace, error) {
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

// Read returns which network namespace is at path. The cookie is 0 where the caller may
// not enter it. ErrNoNamespace: there is none.
func Read(path string) (attachment.Namespace, error) {
	fd, id, err := Open(path)
	if err != nil {
		return id, err
	}
	defer func() { _ = unix.Close(fd) }()
	id.Cookie = cookie(fd)
	return id, nil
}

// cookie reads SO_NETNS_COOKIE of a socket that is made in the namespace, 0 if that fails.
func cookie(fd int) uint64 {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return 0
	}
	defer func() { _ = unix.Close(home) }()
	if unix.Setns(fd, unix.CLONE_NEWNET) != nil {
		runtime.UnlockOSThread()
		return 0
	}
	value := cookieHere()
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		// Else the thread stays locked, and ends with its goroutine: nothing else ever runs in the
		// wrong namespace.
		runtime.UnlockOSThread()
	}
	return value
}

func cookieHere() uint64 {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(socket) }()
	value, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return value
}

package identity

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
)

// pidfdThread is PIDFD_THREAD of linux/pidfd.h.
const pidfdThread = unix.O_EXCL

// SocketNamespace returns the identity of the network namespace that an open file of a process keeps
// alive. The file is a socket, or /dev/net/tun. thread is the process, or one of its threads that
// has open files of its own. The Path of the identity is empty. SocketNamespace returns ErrNoNamespace if
// the process or the file is gone, or the file is no such file. Any other error means that the
// namespace cannot be known.
func SocketNamespace(thread, file int) (attachment.Namespace, error) {
	fd, err := duplicateFile(thread, file)
	if err != nil {
		return attachment.Namespace{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	// /dev/net/tun answers SIOCGSKNS too. TUNGETDEVNETNS would tell the namespace of the device,
	// which the file does not keep alive.
	namespace, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	if err != nil {
		return attachment.Namespace{}, fileError("SIOCGSKNS", thread, file, err)
	}
	defer func() { _ = unix.Close(namespace) }()
	id, err := identify(namespace, "")
	if err != nil {
		return attachment.Namespace{}, err
	}
	if id.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
		id.Cookie = cookie(namespace)
	}
	return id, nil
}

// duplicateFile returns a descriptor of this process for an open file of another one. The caller closes
// it.
func duplicateFile(thread, file int) (int, error) {
	process, err := unix.PidfdOpen(thread, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // The thread does not lead its process.
		process, err = unix.PidfdOpen(thread, pidfdThread)
	}
	if err != nil {
		return -1, fileError("pidfd_open", thread, file, err)
	}
	defer func() { _ = unix.Close(process) }()
	fd, err := unix.PidfdGetfd(process, file, 0)
	if errors.Is(err, unix.EPERM) {
		// The kernel may answer so for a process that is about to end.
		fd, err = unix.PidfdGetfd(process, file, 0)
	}
	if err != nil {
		return -1, fileError("pidfd_getfd", thread, file, err)
	}
	return fd, nil
}

// fileError returns ErrNoNamespace for an error that says that the file is gone or is no socket.
func fileError(call string, thread, file int, err error) error {
	for _, errno := range []error{unix.ESRCH, unix.EBADF, unix.ENOTTY} {
		if errors.Is(err, errno) {
			return fmt.Errorf("file %d of process %d: %w: %s: %w", file, thread, ErrNoNamespace, call, err)
		}
	}
	return fmt.Errorf("file %d of process %d: %s: %w", file, thread, call, err)
}

// kcmpFiles is KCMP_FILES of linux/kcmp.h.
const kcmpFiles = 2

// ShareFiles says whether two threads have the same open files. Threads of one process do, unless
// one of them has left the common table (CLONE_FILES). If it cannot be known, the answer is false.
func ShareFiles(first, second int) bool {
	differ, _, err := unix.Syscall6(unix.SYS_KCMP, uintptr(first), uintptr(second), kcmpFiles, 0, 0, 0)
	return err == 0 && differ == 0
}

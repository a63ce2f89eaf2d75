package kernel

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Errors that callers match with errors.Is.
var (
	// ErrNoNamespace: the path does not exist or holds no network namespace.
	ErrNoNamespace = identity.ErrNoNamespace
	// ErrNoDevice: the device is not there.
	ErrNoDevice = errors.New("no such device")
	// ErrExists: a device of that name is there already.
	ErrExists = errors.New("device exists already")
	// ErrNoCarrier: nothing can be sent. The device or one below it is down or has no link.
	ErrNoCarrier = errors.New("no carrier")
)

// Namespace is an open network namespace with a netlink socket in it. Several
// goroutines may use it at once. The caller closes it.
type Namespace struct {
	// fd is -1 after Close.
	fd     int
	socket *rtnl.Socket
	id     attachment.Namespace
	// lastPeer is the namespace whose number was asked for last, nil at first. Most often that is the host. A number stays
	// once the kernel has given it.
	lastPeer atomic.Pointer[peerNumber]
}

// Open opens the network namespace at path. It returns ErrNoNamespace if there is none.
func Open(path string) (*Namespace, error) {
	fd, id, err := identity.Open(path)
	if err != nil {
		return nil, err
	}
	n := &Namespace{fd: fd, id: id}
	if n.socket, err = n.dial(); err != nil {
		n.Close()
		return nil, err
	}
	n.id.Cookie, err = unix.GetsockoptUint64(n.socket.FD(), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err = cookieError(err); err != nil {
		n.Close()
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	return n, nil
}

// dial opens a netlink socket inside the namespace.
func (n *Namespace) dial() (*rtnl.Socket, error) {
	fd, err := n.openSocket(unix.AF_NETLINK, unix.SOCK_RAW)
	if err != nil {
		return nil, err
	}
	socket, err := rtnl.NewSocket(fd)
	if err != nil {
		return nil, fmt.Errorf("netlink socket in %s: %w", n.Path(), err)
	}
	return socket, nil
}

// openSocket opens a socket inside the namespace. Whatever is sent through it works there, without
// a further change of namespace. The caller closes it. The protocol is 0. For a netlink socket, that is NETLINK_ROUTE. A
// packet socket gets its own later.
func (n *Namespace) openSocket(domain, kind int) (fd int, err error) {
	err = n.Inside(func() error {
		if fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("socket in %s: %w", n.Path(), privilege.Explain(err, "CAP_NET_RAW"))
		}
		return nil
	})
	return fd, err
}

// errOldKernel says that the kernel is too old for relink.
var errOldKernel = errors.New("relink needs Linux 5.14 or newer")

// cookieError returns errOldKernel for a kernel without cookies. Without them relink could only
// guess which namespace is which, because the kernel reuses inode numbers.
func cookieError(err error) error {
	if errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("the kernel has no cookies of network namespaces (SO_NETNS_COOKIE): %w", errOldKernel)
	}
	if err != nil {
		return fmt.Errorf("read SO_NETNS_COOKIE: %w", err)
	}
	return nil
}

// OpenHost opens the namespace that the calling thread is in. Outside of this package, this is the
// namespace of the process.
func OpenHost() (*Namespace, error) { return Open("/proc/thread-self/ns/net") }

// Identity says which namespace this is.
func (n *Namespace) Identity() attachment.Namespace { return n.id }

// Path is the path that n was opened by.
func (n *Namespace) Path() string { return n.id.Path }

// Close releases the namespace and its socket. It can be called twice.
func (n *Namespace) Close() {
	if n.socket != nil {
		n.socket.Close()
		n.socket = nil
	}
	if n.fd >= 0 {
		_ = unix.Close(n.fd)
		n.fd = -1
	}
}

// Inside runs f on a thread that is in n (identity.Inside).
func (n *Namespace) Inside(f func() error) error { return identity.Inside(n.fd, n.Path(), f) }

// CheckSame returns attachment.ErrOtherNamespace unless n is the recorded namespace.
func (n *Namespace) CheckSame(recorded attachment.Namespace) error {
	return recorded.Same(n.Identity())
}

// OpenSame opens the recorded namespace: at its path, or else where sandbox.FindPaths finds it. Nobody else opens a recorded
// namespace. If nothing leads to it, OpenSame returns the error of the path: ErrNoNamespace or
// attachment.ErrOtherNamespace.
func OpenSame(recorded attachment.Namespace) (*Namespace, error) {
	n, err := openSame(recorded, recorded.Path)
	if !IsMissing(err) {
		return n, err
	}
	if path := sandbox.FindPaths(recorded)[recorded]; path != "" {
		return openSame(recorded, path)
	}
	return nil, err
}

// IsMissing says whether the error means that a path does not lead to the recorded namespace.
func IsMissing(err error) bool {
	return errors.Is(err, ErrNoNamespace) || errors.Is(err, attachment.ErrOtherNamespace)
}

// OpenListed opens the sandbox by the first of its paths that still leads there. It returns ErrNoNamespace if none does.
func OpenListed(s sandbox.Sandbox) (*Namespace, error) {
	for _, path := range s.Paths {
		n, err := Open(path)
		if errors.Is(err, ErrNoNamespace) {
			continue
		}
		if err != nil || n.id.File() == s.NamespaceFile {
			return n, err
		}
		n.Close()
	}
	return nil, ErrNoNamespace
}

func openSame(recorded attachment.Namespace, path string) (*Namespace, error) {
	n, err := Open(path)
	if err != nil {
		return nil, err
	}
	if err := recorded.Same(n.id); err != nil {
		n.Close()
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	return n, nil
}

// NotFound says that nothing that OpenSame finds leads to the recorded namespace. That is no proof: something else can keep it.
func NotFound(recorded attachment.Namespace) bool {
	err := CheckNamespace(recorded)
	return IsMissing(err) && sandbox.FindPaths(recorded)[recorded] == ""
}

// CheckNamespace returns nil if recorded.Path holds the recorded namespace, as far as can be told
// without entering it. Otherwise it returns an error that says why not. It returns ErrNoNamespace
// if there is no namespace any more.
func CheckNamespace(recorded attachment.Namespace) error {
	bootID, err := boot.ID()
	if err != nil {
		return err
	}
	file, ok := sandbox.Identify(recorded.Path)
	if ok && recorded.Same(attachment.Namespace{BootID: bootID, Device: file.Device, Inode: file.Inode}) == nil {
		return nil
	}
	live, err := identity.Read(recorded.Path) // It says why not.
	if err != nil {
		return err
	}
	return recorded.Same(live)
}

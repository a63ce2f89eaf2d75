package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/relink-cni/relink/pkg/flock"
)

// maxConnections is how many clients are served at the same time. Further clients wait.
const maxConnections = 32

// Listen makes the control socket at the path, with mode 0600. It makes the directory if it is missing. It replaces the
// socket of an agent that was killed. If another agent lives, the error matches flock.ErrBusy and names that process.
// The listener accepts only root. Close removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// The lock keeps a second agent away. Its file stays.
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := flock.Lock(ctx, lock, flock.Exclusive); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	unix, err := bindSocket(path)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return netutil.LimitListener(&listener{unix, lock}, maxConnections), nil
}

// bindSocket binds the socket in the place of one that a killed agent has left.
func bindSocket(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // Until then, listener.Accept keeps others away.
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// listener returns only connections from root.
type listener struct {
	*net.UnixListener
	lock *os.File
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if fromRoot(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// fromRoot asks the kernel who has connected. The mode of the socket already keeps others away, unless somebody changed
// the mode or passed on an open connection.
func fromRoot(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	root := false
	err = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		root = err == nil && cred.Uid == 0
	})
	return err == nil && root
}

// Close removes the socket, and lets another agent start.
func (l *listener) Close() error { return errors.Join(l.UnixListener.Close(), l.lock.Close()) }

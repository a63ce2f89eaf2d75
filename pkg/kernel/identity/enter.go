package identity

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/vishvananda/netns"

	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// Inside runs f on a thread that is in the open namespace. If f starts other programs, these are in it too. f starts no goroutine
// that has to be in it. The path is for errors.
func Inside(fd int, path string, f func() error) error {
	process, err := ProcessNamespace()
	if err != nil {
		return fmt.Errorf("open own namespace: %w", err)
	}
	runtime.LockOSThread()
	if err := netns.Set(netns.NsHandle(fd)); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", path, privilege.Explain(err, "CAP_SYS_ADMIN"))
	}
	err = f()
	if leaveErr := netns.Set(netns.NsHandle(process)); leaveErr != nil {
		// The thread stays locked. The runtime ends it together with its goroutine, so nothing else
		// runs in the wrong namespace.
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", path, leaveErr))
	}
	runtime.UnlockOSThread()
	return err
}

// processFD is the namespace that the process was started in, 0 until somebody needs it. It stays
// open, because to look it up in /proc takes longer than to enter it.
var processFD atomic.Int64

// ProcessNamespace returns the namespace of the process, to which every thread comes back. It remembers no failure: the next
// call tries again.
func ProcessNamespace() (fd int, err error) {
	if open := processFD.Load(); open != 0 {
		return int(open), nil
	}
	own, err := netns.GetFromPath("/proc/thread-self/ns/net") // netns.Get names a thread that can do something else by then.
	if err == nil && !processFD.CompareAndSwap(0, int64(own)) {
		_ = own.Close() // Another thread was faster.
		return int(processFD.Load()), nil
	}
	return int(own), err
}

package guard

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// deaf mounts a file system that accepts requests and never answers. A process that opens a file there waits as in a
// driver that hangs: not even SIGKILL ends it. The file system ends with the test.
func deaf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("deaf", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fuse) // Every request fails now.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	request := make([]byte, 1<<17)
	if _, err := unix.Read(fuse, request); err != nil { // FUSE_INIT
		t.Fatal(err)
	}
	// fuse_out_header with the request's number, and fuse_init_out with version 7.31 (linux/fuse.h).
	answer := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], request[8:16])
	binary.NativeEndian.PutUint32(answer[16:], 7)
	binary.NativeEndian.PutUint32(answer[20:], 31)
	if _, err := unix.Write(fuse, answer); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := unix.Read(fuse, request); err != nil {
				return
			}
		}
	}()
	return dir
}

// A process that waits for a hanging driver cannot be killed. The pods and the kubelet come back all the same.
func TestACommandThatCannotBeKilled(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	out := h.guard(t, 123, reload+"; exec cat "+filepath.Join(deaf(t), "driver"), "--limit", reloads)
	contains(t, out, "it gets SIGTERM, and after 300ms SIGKILL", "NOT BACK: the command does not end, not even by SIGKILL: cat (process ", "restored or repaired 1 attachment",
		"gateways that answer: 1 of 1", "the command has passed its limit", "not all is back: see above, and relink status")
	h.whole(t, "active")
}

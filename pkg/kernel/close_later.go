package kernel

import "golang.org/x/sys/unix"

// closeLater closes a packet socket without a wait. Whoever drops the last reference to such a
// socket waits in the kernel for an RCU grace period, at the end of a process too. That is 9 ms of
// the 20 ms that a restore of 100 sandboxes takes.
//
// Here the kernel itself drops the last reference. The socket is sent, together with the receiver,
// to the receiver of a socket pair. Then nobody but the receiver's own queue refers to the two, and
// a worker of the kernel that looks for such cycles deletes them. Before Linux 6.9 there is no such
// worker: the call waits as unix.Close does.
func closeLater(fd int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return
	}
	sender, receiver := pair[0], pair[1]
	_ = unix.Sendmsg(sender, []byte{0}, unix.UnixRights(fd, receiver), nil, 0)
	for _, descriptor := range []int{fd, receiver, sender} { // The sender's end starts the search for cycles.
		_ = unix.Close(descriptor)
	}
}

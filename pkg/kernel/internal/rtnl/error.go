package rtnl

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// Error is how the kernel refuses a request. errors.Is matches the Errno.
type Error struct {
	Errno syscall.Errno
	// Message are the kernel's own explanation. They are empty if it has none.
	Message string
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Errno.Error() + ": " + e.Message
	}
	// Where EPERM means something else, the kernel explains it. An example is a NIC that is up and
	// cannot be enslaved (bond_enslave).
	return privilege.Explain(e.Errno, "CAP_NET_ADMIN").Error()
}

func (e *Error) Unwrap() error { return e.Errno }

// parseError returns the error in an NLMSG_ERROR or NLMSG_DONE, nil for an
// acknowledgement.
func parseError(m *syscall.NetlinkMessage) error {
	const sizeofErrno = 4
	if len(m.Data) < sizeofErrno {
		return malformed("an acknowledgement of length %d, want at least %d", len(m.Data), sizeofErrno)
	}
	errno := -int32(binary.NativeEndian.Uint32(m.Data))
	if errno == 0 {
		return nil
	}
	header := unix.SizeofNlMsghdr + sizeofErrno // The header of the request comes first.
	if m.Header.Type == unix.NLMSG_DONE {
		header = sizeofErrno
	}
	e := &Error{Errno: syscall.Errno(errno)}
	if m.Header.Flags&unix.NLM_F_ACK_TLVS != 0 {
		// Whatever the words are, the number is known.
		_ = EachAttribute(m.Data, header, func(a *Attribute) {
			if a.Type() == unix.NLMSGERR_ATTR_MSG {
				e.Message = a.Text()
			}
		})
	}
	return e
}

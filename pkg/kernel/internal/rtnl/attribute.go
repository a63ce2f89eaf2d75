package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// ErrMalformed says that an answer is not what the kernel is documented to send: it is too
// short for its header, or an attribute is too short for its type.
var ErrMalformed = errors.New("malformed answer of the kernel")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
}

// typeMask takes the flags off the type of an attribute.
const typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

// Attribute is one attribute of an answer. It is valid during the call of the function that gets
// it. Its methods read the value. If the value is too short for a method, the method returns zero,
// and the function that reads the list returns ErrMalformed. If the value is longer, the rest is
// ignored: a newer kernel may have more to tell.
type Attribute struct {
	kind  uint16
	value []byte
	err   error
}

// EachAttribute calls f with each attribute in the payload of an answer, behind a header of so many
// bytes. It makes no list of them, as nl.ParseRouteAttr does, because a restore reads many answers.
// It returns ErrMalformed if the payload is shorter than its header, if an attribute is longer than
// the rest, or if a value is too short for what f reads. It then does not call f again.
func EachAttribute(payload []byte, header int, f func(*Attribute)) error {
	if err := CheckHeader(payload, header); err != nil {
		return err
	}
	var a Attribute
	for b := payload[header:]; len(b) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return malformed("an attribute of length %d, where %d bytes are left", size, len(b))
		}
		a.kind, a.value = binary.NativeEndian.Uint16(b[2:])&typeMask, b[unix.SizeofRtAttr:size]
		if f(&a); a.err != nil {
			return a.err
		}
		b = b[min(len(b), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return nil
}

// CheckHeader returns ErrMalformed if the payload is shorter than its header of so many bytes.
func CheckHeader(payload []byte, header int) error {
	if len(payload) < header {
		return malformed("length %d, less than the %d of its header", len(payload), header)
	}
	return nil
}

// Type returns the attribute's type, without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
func (a *Attribute) Type() uint16 { return a.kind }

// Value returns the value, which is a part of the answer.
func (a *Attribute) Value() []byte { return a.value }

// Copy returns a copy of the value.
func (a *Attribute) Copy() []byte { return bytes.Clone(a.value) }

// Fail records the error. The function that reads the list returns it. A nil error is ignored.
func (a *Attribute) Fail(err error) {
	if a.err == nil && err != nil {
		a.err = fmt.Errorf("attribute %d: %w", a.kind, err)
	}
}

// Bytes returns that many bytes of the value from the offset on. If the value has fewer, it returns
// zeros. The bytes may be a part of the answer.
func (a *Attribute) Bytes(offset, size int) []byte {
	if len(a.value) < offset+size {
		a.Fail(malformed("length %d, want at least %d", len(a.value), offset+size))
		return make([]byte, size)
	}
	return a.value[offset : offset+size]
}

// Uint8 returns the value as a number of one byte.
func (a *Attribute) Uint8() uint8 { return a.Bytes(0, 1)[0] }

// Uint16 returns the value as a number of two bytes in the machine's order.
func (a *Attribute) Uint16() uint16 { return binary.NativeEndian.Uint16(a.Bytes(0, 2)) }

// Uint32 returns the value as a number of four bytes in the machine's order.
func (a *Attribute) Uint32() uint32 { return a.Uint32At(0) }

// Uint32At returns the number of four bytes at the offset, in the machine's order.
func (a *Attribute) Uint32At(offset int) uint32 {
	return binary.NativeEndian.Uint32(a.Bytes(offset, 4))
}

// Int32 returns the value as a number of four bytes with a sign, in the machine's order.
func (a *Attribute) Int32() int { return int(int32(a.Uint32())) }

// NetworkUint16 returns the value as a number of two bytes in network byte order.
func (a *Attribute) NetworkUint16() uint16 { return binary.BigEndian.Uint16(a.Bytes(0, 2)) }

// NetworkUint64 returns the value as a number of eight bytes in network byte order.
func (a *Attribute) NetworkUint64() uint64 { return binary.BigEndian.Uint64(a.Bytes(0, 8)) }

// Number returns the number of that many bytes (1, 2 or 4) at the offset, in the machine's order.
func (a *Attribute) Number(offset, size int) uint32 {
	switch b := a.Bytes(offset, size); size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.NativeEndian.Uint16(b))
	default:
		return binary.NativeEndian.Uint32(b)
	}
}

// Text returns the value as a string, which ends at the first zero byte, if there is one.
func (a *Attribute) Text() string {
	text, _, _ := bytes.Cut(a.value, []byte{0})
	return string(text)
}

// Address returns the value as an address of IPv4 or IPv6, by its length.
func (a *Attribute) Address() netip.Addr {
	addr, ok := netip.AddrFromSlice(a.value)
	if !ok {
		a.Fail(malformed("length %d, want 4 or 16 for an IP address", len(a.value)))
	}
	return addr
}

// Each calls f with each attribute in the value, which is a list of attributes itself.
func (a *Attribute) Each(f func(*Attribute)) {
	if a.err == nil {
		a.Fail(EachAttribute(a.value, 0, f))
	}
}

// refusal returns the error of a request that the kernel refuses. errors.Is matches the Errno. The message is the kernel's own
// explanation, and is empty if it has none.
func refusal(errno syscall.Errno, message string) error {
	switch message {
	case "":
		// Where EPERM means something else, the kernel explains it. An example is a NIC that is up and
		// cannot be enslaved (bond_enslave).
		return privilege.Explain(errno, "CAP_NET_ADMIN")
	case unknownType:
		message += ": its kernel module is missing: run modprobe macvlan, macvtap, ipvlan, 8021q or bonding"
	}
	return fmt.Errorf("%w: %s", errno, message)
}

// unknownType is the message for a device that the kernel cannot make (rtnl_newlink). The kernel has tried to load the module itself by
// then. That fails, for example, in a container without modprobe, or if the module is not installed.
const unknownType = "Unknown device type"

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
	message := ""
	if m.Header.Flags&unix.NLM_F_ACK_TLVS != 0 {
		// Whatever the words are, the number is known.
		_ = EachAttribute(m.Data, header, func(a *Attribute) {
			if a.Type() == unix.NLMSGERR_ATTR_MSG {
				message = a.Text()
			}
		})
	}
	return refusal(syscall.Errno(errno), message)
}

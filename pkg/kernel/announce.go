package kernel

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Announcer tells the neighbours of interfaces which MAC their addresses are at. It sends on the
// interfaces' parent: the kernel would deliver a broadcast on a macvlan to all its siblings first,
// which have lost nothing. One socket in the host serves all sandboxes, because the
// kernel takes 10 ms and more to close one. Several goroutines may use it at once. The caller closes
// it.
type Announcer struct {
	fd int
}

// NewAnnouncer returns an Announcer for interfaces whose parents are in n.
func (n *Namespace) NewAnnouncer() (*Announcer, error) {
	// Protocol 0: this socket only sends, and the kernel gives it no packets.
	fd, err := n.openSocket(unix.AF_PACKET, unix.SOCK_RAW)
	if err != nil {
		return nil, err
	}
	return &Announcer{fd}, nil
}

// Close closes the socket. It does not wait for the kernel to be done with it.
func (a *Announcer) Close() { closeLater(a.fd) }

// Announce sends one frame for each address of the interface: a gratuitous ARP request (RFC 5227,
// section 3) for IPv4, and an unsolicited neighbour advertisement (RFC 4861, section 7.2.6) for
// IPv6. It sends them on the parent of that index, which must have carrier. It sends none for an
// address that has expired: another host may have that by now.
func (a *Announcer) Announce(parentIndex int, i netstate.Interface) error {
	mac, err := net.ParseMAC(i.Link.MAC)
	if err != nil {
		return err
	}
	failpoint.Here("before announcing")
	target := &unix.SockaddrLinklayer{Ifindex: parentIndex}
	var errs []error
	for _, address := range unexpired(i.Addresses) {
		frame := wire.Announcement(mac, address.Prefix.Addr())
		if v := i.Link.VLAN; v != nil { // The interface itself would add the tag.
			frame = wire.Tagged(frame, etherType(v.Protocol), uint16(v.ID))
		}
		if err := unix.Sendto(a.fd, frame, 0, target); err != nil {
			errs = append(errs, fmt.Errorf("announce %s of %s: %w", address.Prefix.Addr(), i.Link.Name, err))
		}
	}
	return errors.Join(errs...)
}

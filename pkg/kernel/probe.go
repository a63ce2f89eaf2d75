package kernel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
)

// ProbeOptions says how Probe looks for another host with an address.
type ProbeOptions struct {
	// Count is how many probes are sent for each address, at least 1. Hosts usually send 3 for an
	// IPv4 address (RFC 5227, section 1.1) and 1 for an IPv6 address (RFC 4862, section 5.1).
	Count int
	// Wait is how long Probe waits for answers after each round of probes. It is more than 0.
	Wait time.Duration
}

// Conflict is an address that another host has, or probes for too.
type Conflict struct {
	Address netip.Addr
	// MAC is the MAC at which the other host says that it has the address.
	MAC string
}

// carrierLimit is how long Probe waits until a link that was set up can send. A link on a parent
// with carrier can do so at once.
const carrierLimit = 2 * time.Second

// Probe returns the addresses that are in use on the link of the device of that index: those that
// another host answers for or uses during the call, and those that another host probes for at the
// same time (RFC 5227, section 2.1.1, and RFC 4862, section 5.4). They come in the order of the
// addresses, each once.
//
// The device must have an Ethernet MAC and no addresses, and be down. Probe sets it up, and down
// again in any case. Probe returns as soon as each address has a conflict. Otherwise it returns
// after p.Count times p.Wait, plus up to 2 seconds for a link that is slow to come up. It does not
// need the IPv6 of the kernel. It cannot tell another host with the MAC of the device from the
// device itself. ipvlans on one parent are such hosts.
//
// It refuses a device that is up, and leaves it as it is. It returns ErrNoDevice if there is no
// such device, ErrUnsupported for a device that does not resolve addresses, ErrNoCarrier if nothing
// can be sent, or the error of ctx. With an error, it returns the conflicts that it knows so far.
func (n *Namespace) Probe(ctx context.Context, index int, addresses []netip.Addr, p ProbeOptions) (conflicts []Conflict, err error) {
	if err := errors.Join(p.validate(addresses), ctx.Err()); err != nil || len(addresses) == 0 {
		return nil, err
	}
	link, err := n.resolving(index)
	if err == nil && link.Up { // When the probing ends, it would be set down, and its routes would go.
		err = fmt.Errorf("%s is up: %w", link.Name, errDeviceInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("probe on device %d: %w", index, err)
	}
	if err := n.socket.Run(setUp(index, link.Name)); err != nil {
		return nil, noCarrier(err) // A VLAN device cannot go up while its parent is down.
	}
	pr := prober{namespace: n, link: link}
	for _, a := range addresses {
		pr.solicitations = append(pr.solicitations, Solicitation{unspecified(familyOf(a)).Addr(), a})
	}
	_, _ = rand.Read(pr.nonce[:]) // It never fails.
	if conflicts, err = pr.run(ctx, p, carrierLimit); err != nil {
		err = fmt.Errorf("probe on %s: %w", link.Name, err)
	}
	return conflicts, errors.Join(err, n.socket.Run(setDown(index, link.Name)))
}

// validate returns an error for options or addresses that Probe cannot work with.
func (p ProbeOptions) validate(addresses []netip.Addr) error {
	if p.Count < 1 || p.Wait <= 0 {
		return fmt.Errorf("%d probes with a wait of %s after each: there must be at least 1 probe, and a wait of more than 0", p.Count, p.Wait)
	}
	for _, a := range addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("address %s cannot be probed: it must be the address of one host, without a zone", a)
		}
	}
	return nil
}

// resolving returns the device, or an error if it does not resolve addresses.
func (n *Namespace) resolving(index int) (*link, error) {
	link, err := n.linkByIndex(index)
	if err == nil && (len(macBytes(link.MAC)) != len(wire.AllNodesMAC) || link.NoARP) {
		err = fmt.Errorf("%s, a %s, does not resolve addresses: %w", link.Name, link.Kind, ErrUnsupported)
	}
	return link, err
}

// noCarrier returns the error as ErrNoCarrier if it says that the device cannot send. The kernel
// returns ENETDOWN for a device that is down, and ENOBUFS for one that drops everything because a
// device below it has lost its carrier.
func noCarrier(err error) error {
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("%w: %w", ErrNoCarrier, err)
	}
	return err
}

// prober asks for addresses and listens for answers.
type prober struct {
	namespace     *Namespace
	link          *link
	mac           net.HardwareAddr
	solicitations []Solicitation
	nonce         [wire.NonceLen]byte
	// answersOnly passes over the probes of other hosts.
	answersOnly bool
	// sockets are a packet socket for the IPv6 addresses and one for the others, as far as there are any.
	sockets map[bool]int
	// answers has the MAC of another host for each address. It is empty if nobody has answered for
	// the address.
	answers    map[netip.Addr]string
	unanswered int // How many addresses have no MAC in answers.
}

// run asks on a device that is up, or comes up within the limit. It returns what was heard.
func (pr *prober) run(ctx context.Context, p ProbeOptions, limit time.Duration) ([]Conflict, error) {
	defer func() {
		for _, fd := range pr.sockets {
			closeLater(fd)
		}
	}()
	if err := pr.open(); err != nil {
		return nil, err
	}
	if err := pr.awaitCarrier(ctx, limit); err != nil {
		return nil, err
	}
	failpoint.Here("before probing")
	err := pr.ask(ctx, p)
	failpoint.Here("after probing")
	return pr.conflicts(), err
}

// conflicts returns what was heard, in the order of the addresses.
func (pr *prober) conflicts() (conflicts []Conflict) {
	for _, s := range pr.solicitations {
		c := Conflict{Address: s.Target, MAC: pr.answers[s.Target]}
		if c.MAC != "" && !slices.Contains(conflicts, c) {
			conflicts = append(conflicts, c)
		}
	}
	return conflicts
}

// awaitCarrier waits until the device can send. It returns ErrNoCarrier after the limit.
func (pr *prober) awaitCarrier(ctx context.Context, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; {
		link, err := pr.namespace.linkByIndex(pr.link.Index)
		switch {
		case err != nil:
			return err
		case link.carrier():
			return nil
		case time.Now().After(deadline):
			return ErrNoCarrier
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(dadInterval):
		}
	}
}

// open opens the sockets, which listen from now on.
func (pr *prober) open() (err error) {
	pr.mac, pr.sockets, pr.answers = macBytes(pr.link.MAC), map[bool]int{}, map[netip.Addr]string{}
	// The answers to duplicate address detection go to all nodes.
	groups := []net.HardwareAddr{wire.AllNodesMAC}
	for _, s := range pr.solicitations {
		pr.answers[s.Target] = ""
		if s.Target.Is6() {
			groups = append(groups, wire.SolicitedNodeMAC(s.Target))
		}
	}
	pr.unanswered = len(pr.answers)
	if slices.ContainsFunc(pr.solicitations, func(s Solicitation) bool { return s.Target.Is4() }) {
		err = pr.listenOn(false, unix.ETH_P_ARP, wire.ARPFilter, nil)
	}
	if err == nil && len(groups) > 1 {
		err = pr.listenOn(true, unix.ETH_P_IPV6, wire.NeighbourFilter, groups)
	}
	return err
}

// ask sends the probes and waits, as long as the device has carrier. When it returns,
// everything that came until then has been read.
func (pr *prober) ask(ctx context.Context, p ProbeOptions) error {
	sent := map[netip.Addr]bool{}
	for range p.Count {
		if err := pr.send(ctx, sent); err != nil {
			return err
		}
		if err := pr.listen(ctx, time.Now().Add(p.Wait)); err != nil || pr.unanswered == 0 {
			return err
		}
		// Without carrier nothing fails. The kernel drops what is sent, and nobody answers.
		if err := pr.awaitCarrier(ctx, 0); err != nil {
			return err
		}
	}
	for _, s := range pr.solicitations {
		if !sent[s.Target] {
			return fmt.Errorf("no probe for %s could be sent: %w", s.Target, unix.ENOBUFS)
		}
	}
	return nil
}

// send sends a probe for each address. It sends one for an address with a conflict too, because
// another host that probes for it must hear of it. It notes in sent for which addresses a probe got
// out: a busy parent drops some.
func (pr *prober) send(ctx context.Context, sent map[netip.Addr]bool) error {
	for _, s := range pr.solicitations {
		frame := wire.Solicitation(pr.mac, s.Source, s.Target, pr.nonce[:])
		_, err := unix.Write(pr.sockets[s.Target.Is6()], frame)
		if (errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN)) && pr.awaitCarrier(ctx, 0) == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("send a probe for %s: %w", s.Target, noCarrier(err))
		}
		sent[s.Target] = true
	}
	return nil
}

// cancelInterval is how often a prober that listens looks whether it is to end.
const cancelInterval = 50 * time.Millisecond

// listen takes the frames that come until the deadline, and in any case those that have come before: the result does not depend on how
// soon this process gets its turn. It returns early when each address has an answer.
func (pr *prober) listen(ctx context.Context, deadline time.Time) error {
	var polled []unix.PollFd
	for _, fd := range pr.sockets {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for remaining := time.Duration(1); remaining > 0 && pr.unanswered > 0; {
		remaining = time.Until(deadline)
		timeout := unix.NsecToTimespec(int64(max(0, min(remaining, cancelInterval))))
		_, _ = unix.Ppoll(polled, &timeout, nil) // It fails only for a signal.
		for _, fd := range pr.sockets {
			if err := pr.drain(fd); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// drain takes the frames that have come, at most maxQueued: on a busy link more come all the time.
func (pr *prober) drain(fd int) error {
	frame := make([]byte, wire.AnswerLen)
	for range maxQueued {
		size, err := unix.Read(fd, frame)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return fmt.Errorf("listen for answers: %w", noCarrier(err))
		}
		pr.handleFrame(frame[:size])
	}
	return nil
}

// maxQueued is more than the number of frames that fit a socket's usual buffer (208 KiB). Each
// takes more than half a KiB of it.
const maxQueued = 512

func (pr *prober) handleFrame(frame []byte) {
	claim, ok := wire.ParseClaim(frame, pr.mac, pr.nonce[:])
	if !ok || pr.answersOnly && !claim.Answer {
		return
	}
	if mac, asked := pr.answers[claim.Address]; asked && mac == "" {
		pr.answers[claim.Address] = claim.MAC.String()
		pr.unanswered--
	}
}

// listenOn opens a packet socket for one family. It gets the frames of the protocol on the device that pass the filter, and are for the host
// or for the groups. The switches on the way do not learn of the groups (as MLD would tell them). If they track groups, the probes of
// other hosts do not arrive. Answers do arrive, because they go to all nodes.
func (pr *prober) listenOn(ipv6 bool, protocol uint16, filter []bpf.Instruction, groups []net.HardwareAddr) error {
	// Protocol 0: no frame comes before the socket is bound, and has its filter.
	fd, err := pr.namespace.openSocket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	pr.sockets[ipv6] = fd
	errs := []error{attachFilter(fd, filter)}
	for _, group := range groups {
		m := &unix.PacketMreq{Ifindex: int32(pr.link.Index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
		copy(m.Address[:], group)
		errs = append(errs, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, m))
	}
	onWire := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	errs = append(errs, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: onWire, Ifindex: pr.link.Index}))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("packet socket in %s: %w", pr.namespace.Path(), err)
	}
	return nil
}

func attachFilter(fd int, filter []bpf.Instruction) error {
	assembled, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(assembled))
	for i, f := range assembled {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

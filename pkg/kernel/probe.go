package kernel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
)

// ProbeOptions says how Probe looks for another host with an address.
type ProbeOptions struct {
	// Count is how many probes are sent for each address, 1 at least. By default,
	// hosts send 3 for an IPv4 address (RFC 5227, section 1.1) and 1 for an IPv6
	// address (RFC 4862, section 5.1).
	Count int
	// Wait is how long answers are waited for after each probe. It is more than 0.
	Wait time.Duration
}

// Conflict is an address that another host has, or probes for too.
type Conflict struct {
	Address netip.Addr
	// MAC is where the other host says that it has the address.
	MAC string
}

// carrierLimit is how long Probe waits for a link that has just come up to be able to
// send. One that is stacked on a parent with carrier has it at once.
const carrierLimit = 2 * time.Second

// Probe says which of the addresses are in use on the link of the device of that index:
// those that another host answers for or uses meanwhile, and those that another host
// probes for at the same time (RFC 5227, section 2.1.1, and RFC 4862, section 5.4). They
// come in the order of the addresses, each once.
//
// The device has a MAC of Ethernet, no addresses, and is down: Probe sets it up, and down
// again in any case. It returns when each address has a conflict, and otherwise after
// p.Count times p.Wait, plus 2 seconds at most for a link that is slow to come up. The
// kernel's IPv6 is not needed. Another host with the device's own MAC, as ipvlans on one
// parent are, can't be told from the device itself.
//
// It returns ErrNoDevice; errInUse for a device that is up, which stays as it is;
// ErrUnsupported for one that neither asks nor answers who has an address; ErrNoCarrier if
// the link can't be probed, or can't any more; or the error of ctx. With an error, the
// conflicts are those known until then.
func (n *Namespace) Probe(ctx context.Context, index int, addresses []netip.Addr, p ProbeOptions) (conflicts []Conflict, err error) {
	if err := errors.Join(p.validate(addresses), ctx.Err()); err != nil || len(addresses) == 0 {
		return nil, err
	}
	link, err := n.probeable(index)
	if err != nil {
		return nil, fmt.Errorf("probe on device %d: %w", index, err)
	}
	if err := n.socket.Run(setUp(index, link.name)); err != nil {
		return nil, noCarrier(err) // A VLAN does not go up on a parent that is down.
	}
	conflicts, err = n.probeUp(ctx, link, addresses, p)
	if err != nil {
		err = fmt.Errorf("probe on %s: %w", link.name, err)
	}
	return conflicts, errors.Join(err, n.socket.Run(setDown(index, link.name)))
}

// validate says what can't be done.
func (p ProbeOptions) validate(addresses []netip.Addr) error {
	if p.Count < 1 || p.Wait <= 0 {
		return fmt.Errorf("%d probes, %s after each: there must be a probe and time to answer it", p.Count, p.Wait)
	}
	for _, a := range addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("address %s is not one that a host can be asked for", a)
		}
	}
	return nil
}

// probeable returns the device if it can be probed on.
func (n *Namespace) probeable(index int) (*link, error) {
	link, err := n.linkByIndex(index)
	switch {
	case err != nil:
		return nil, err
	case link.up():
		// To set it down, as a probing ends, would take its routes away.
		return nil, fmt.Errorf("%s is up: %w", link.name, errInUse)
	case len(link.mac) != len(wire.AllNodesMAC) || link.flags&unix.IFF_NOARP != 0:
		return nil, fmt.Errorf("%s, a %s, does not resolve addresses: %w", link.name, link.kindOf(), ErrUnsupported)
	}
	return link, nil
}

// noCarrier returns the error as one that is ErrNoCarrier too, if it is what the kernel
// says of a device that can't send: ENETDOWN for one that is down, and ENOBUFS for one
// that drops all because the carrier has gone from what is below it.
func noCarrier(err error) error {
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("%w: %w", ErrNoCarrier, err)
	}
	return err
}

// probeUp is Probe on the device that is up now.
func (n *Namespace) probeUp(ctx context.Context, link *link, addresses []netip.Addr, p ProbeOptions) ([]Conflict, error) {
	pr, err := n.newProber(link, addresses)
	if err != nil {
		return nil, err
	}
	defer pr.close()
	if err := n.awaitCarrier(ctx, link.index, carrierLimit); err != nil {
		return nil, err
	}
	failpoint.Here("before probing")
	err = pr.run(ctx, p, func() error { return n.awaitCarrier(ctx, link.index, 0) })
	failpoint.Here("after probing")
	return pr.conflicts(), err
}

// awaitCarrier waits until the device can send, or returns ErrNoCarrier after the limit.
func (n *Namespace) awaitCarrier(ctx context.Context, index int, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; {
		link, err := n.linkByIndex(index)
		switch {
		case err != nil:
			return err
		// Running, as the kernel drops what is sent from when the carrier comes until
		// it has noticed (linkwatch_do_dev sets both the queues and this flag).
		case link.carrier() && link.flags&unix.IFF_RUNNING != 0:
			return nil
		case time.Now().After(deadline):
			return ErrNoCarrier
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleInterval):
		}
	}
}

// prober sends probes and hears what comes of them.
type prober struct {
	mac       net.HardwareAddr
	addresses []netip.Addr
	nonce     []byte
	// arp and neighbours are packet sockets, nil where no address needs them.
	arp, neighbours *os.File

	mu sync.Mutex
	// heard has the MAC of another host for each address, empty for none.
	heard map[netip.Addr]string
	free  int // How many have none.

	decided chan struct{} // Closed when none is free.
	failed  chan error    // Of the sockets; one each has room.
}

// newProber returns a prober that the caller closes. It hears from now on.
func (n *Namespace) newProber(link *link, addresses []netip.Addr) (pr *prober, err error) {
	pr = &prober{
		mac: link.mac, addresses: addresses, nonce: make([]byte, wire.NonceLen), heard: map[netip.Addr]string{},
		decided: make(chan struct{}), failed: make(chan error, 2),
	}
	_, _ = rand.Read(pr.nonce) // It never fails.
	// The answers to duplicate address detection go to all nodes.
	groups := []net.HardwareAddr{wire.AllNodesMAC}
	for _, a := range addresses {
		pr.heard[a] = ""
		if a.Is6() {
			groups = append(groups, wire.SolicitedNodeMAC(a))
		}
	}
	pr.free = len(pr.heard)
	defer func() {
		if err != nil {
			pr.close()
		}
	}()
	if slices.ContainsFunc(addresses, netip.Addr.Is4) {
		if pr.arp, err = n.probeSocket(link.index, unix.ETH_P_ARP, wire.ARPFilter, nil); err != nil {
			return nil, err
		}
	}
	if len(groups) > 1 {
		pr.neighbours, err = n.probeSocket(link.index, unix.ETH_P_IPV6, wire.NeighbourFilter, groups)
	}
	return pr, err
}

func (pr *prober) sockets() []*os.File {
	return slices.DeleteFunc([]*os.File{pr.arp, pr.neighbours}, func(f *os.File) bool { return f == nil })
}

func (pr *prober) close() {
	for _, socket := range pr.sockets() {
		_ = socket.Close()
	}
}

// conflicts returns what was heard, in the order of the addresses.
func (pr *prober) conflicts() []Conflict {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	var conflicts []Conflict
	for _, a := range pr.addresses {
		c := Conflict{Address: a, MAC: pr.heard[a]}
		if c.MAC != "" && !slices.Contains(conflicts, c) {
			conflicts = append(conflicts, c)
		}
	}
	return conflicts
}

// run probes, while connected returns no error. When it returns, everything has been taken
// that came until then.
func (pr *prober) run(ctx context.Context, p ProbeOptions, connected func() error) error {
	var listening sync.WaitGroup
	for _, socket := range pr.sockets() {
		listening.Go(func() { pr.listen(socket) })
	}
	defer func() {
		for _, socket := range pr.sockets() {
			_ = socket.SetReadDeadline(time.Now())
		}
		listening.Wait()
	}()
	sent := map[netip.Addr]bool{}
	for range p.Count {
		if err := pr.send(time.Now().Add(sendLimit), sent, connected); err != nil {
			return err
		}
		select {
		case <-pr.decided:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case err := <-pr.failed:
			return err
		case <-time.After(p.Wait):
		}
		// Without carrier nothing fails: the kernel drops what is sent, and all is silent.
		if err := connected(); err != nil {
			return err
		}
	}
	select {
	case err := <-pr.failed: // It may have come together with the end of the wait.
		return err
	default:
	}
	for _, a := range pr.addresses {
		if !sent[a] {
			return fmt.Errorf("no probe for %s could be sent: %w", a, unix.ENOBUFS)
		}
	}
	return nil
}

// sendLimit bounds a round's sending, so that no queue that is full for ever holds the probing up. Once
// it is over, Write fails without trying: it is longer than a busy machine leaves a process waiting.
const sendLimit = time.Second

// send sends a probe for each address, those with a conflict included: a host that
// probes for one at the same time has to hear of it, too. It notes in sent those that got
// out: a busy parent drops some.
func (pr *prober) send(deadline time.Time, sent map[netip.Addr]bool, connected func() error) error {
	for _, socket := range pr.sockets() {
		if err := socket.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	for _, a := range pr.addresses {
		socket := pr.arp
		if a.Is6() {
			socket = pr.neighbours
		}
		_, err := socket.Write(wire.Probe(pr.mac, a, pr.nonce))
		if errors.Is(err, unix.ENOBUFS) && connected() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("send a probe for %s: %w", a, noCarrier(err))
		}
		sent[a] = true
	}
	return nil
}

// listen takes what comes until the socket's read deadline.
func (pr *prober) listen(socket *os.File) {
	buf := make([]byte, wire.AnswerLen)
	for {
		size, err := socket.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			pr.drain(socket, buf)
			return
		case err != nil:
			pr.failed <- fmt.Errorf("listen for answers: %w", noCarrier(err))
			return
		}
		pr.take(buf[:size])
	}
}

// drain takes what has come and not been read, so that nothing depends on how soon this
// process has got its turn. No more than maxQueued: on a busy link, more comes meanwhile.
func (pr *prober) drain(socket *os.File, buf []byte) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for range maxQueued {
			size, err := unix.Read(int(fd), buf)
			if err != nil {
				return
			}
			pr.take(buf[:size])
		}
	})
}

// maxQueued is more than the frames that a socket's buffer of the usual size (208 KiB)
// holds: each takes more than half a KiB of it.
const maxQueued = 512

func (pr *prober) take(frame []byte) {
	claim, ok := wire.ParseProbeAnswer(frame, pr.mac, pr.nonce)
	if !ok {
		return
	}
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if mac, asked := pr.heard[claim.Address]; !asked || mac != "" {
		return
	}
	pr.heard[claim.Address] = claim.MAC.String()
	if pr.free--; pr.free == 0 {
		close(pr.decided)
	}
}

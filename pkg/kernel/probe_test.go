package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/wire"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// patient probes until each address has a conflict, however slow the machine is.
var patient = ProbeOptions{Count: 1 << 30, Wait: 50 * time.Millisecond}

// neighbourMAC is the MAC of eth0 in the neighbour's namespace.
const neighbourMAC = "02:00:00:00:00:99"

// newLAN returns a fixture whose lan0 is on a bridge, and the path of a neighbour's namespace on the
// same bridge. The sandbox has IPv6, as usual.
func newLAN(t *testing.T) (w *fixture, neighbour string) {
	t.Helper()
	w = newFixture(t)
	neighbour = fresh.Sandbox(t)
	fresh.IP(t, "", "link add br0 type bridge")
	t.Cleanup(func() { fresh.IP(t, "", "link del br0") })
	fresh.IP(t, "", "link add eth0 address "+neighbourMAC+" netns "+neighbour+" type veth peer name neighbour0")
	// The kernel deletes the devices of a namespace some time after the namespace.
	t.Cleanup(func() { fresh.IP(t, "", "link del neighbour0") })
	fresh.IP(t, neighbour, "link set eth0 up")
	for _, device := range []string{"lan0", "neighbour0"} {
		fresh.IP(t, "", "link set "+device+" up master br0")
	}
	fresh.IP(t, "", "link set br0 up")
	return w, neighbour
}

// add makes an interface in a sandbox. An ADD does the same before it configures the interface.
func (w *fixture) add(t *testing.T, sandbox *Namespace, link netstate.Link) int {
	t.Helper()
	return must(Create(w.host, sandbox, w.index(t, "lan1"), link))(t)
}

// probeUntil probes for longer and longer until it has at least these conflicts, and returns all of them. So the test
// does not depend on how fast an answer comes.
func probeUntil(t *testing.T, n *Namespace, index int, addresses []netip.Addr, least ...netip.Addr) []Conflict {
	t.Helper()
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		conflicts := must(n.Probe(t.Context(), index, addresses, ProbeOptions{Count: 3, Wait: wait}))(t)
		if hasAll(conflicts, least) {
			return conflicts
		}
	}
}

func hasAll(conflicts []Conflict, addresses []netip.Addr) bool {
	for _, a := range addresses {
		if !slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Address == a }) {
			return false
		}
	}
	return true
}

func (w *fixture) wantDown(t *testing.T, path, ifName string) {
	t.Helper()
	if out := fresh.IP(t, path, "-o link show "+ifName); strings.Contains(out, "UP") {
		t.Errorf("not down: %s", out)
	}
	if out := fresh.IP(t, path, "-o addr show "+ifName); out != "" {
		t.Errorf("addresses: %s", out)
	}
	if out := fresh.IP(t, path, "route show table all") + fresh.IP(t, path, "-6 route show table all"); strings.Contains(out, ifName) {
		t.Errorf("routes: %s", out)
	}
}

func wantConflicts(t *testing.T, got []Conflict, want ...Conflict) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("conflicts %+v, want %+v", got, want)
	}
}

// Linux itself has the addresses and answers the probes. The conflict names its MAC. The sandbox that probes may have
// no IPv6.
func TestProbeFindsAnAddressInUse(t *testing.T) {
	for what, disabled := range map[string]string{"with IPv6": "0", "without IPv6": "1"} {
		t.Run(what, func(t *testing.T) {
			w, neighbour := newLAN(t)
			fresh.IP(t, neighbour, "addr add 10.3.0.2/24 dev eth0")
			fresh.IP(t, neighbour, "addr add fd00:3::2/64 dev eth0 nodad")
			fresh.Run(t, w.path, "echo "+disabled+" >/proc/sys/net/ipv6/conf/all/disable_ipv6")
			index := w.add(t, w.sandbox, bridge("eth0"))
			for _, in := range [][]netip.Addr{
				{addr("10.3.0.2")}, {addr("fd00:3::2")}, {addr("fd00:3::2"), addr("10.3.0.2"), addr("fd00:3::2")},
			} {
				want := []Conflict{{in[0], neighbourMAC}}
				if len(in) > 1 {
					want = append(want, Conflict{in[1], neighbourMAC})
				}
				wantConflicts(t, must(w.sandbox.Probe(t.Context(), index, in, patient))(t), want...)
				w.wantDown(t, w.path, "eth0")
			}
		})
	}
}

func TestProbeFindsTheOneAddressInUseAmongOthers(t *testing.T) {
	w, neighbour := newLAN(t)
	fresh.IP(t, neighbour, "addr add 10.3.0.2/24 dev eth0")
	fresh.IP(t, neighbour, "addr add fd00:3::2/64 dev eth0 nodad")
	index := w.add(t, w.sandbox, bridge("eth0"))
	addresses := []netip.Addr{addr("10.3.0.1"), addr("10.3.0.2"), addr("fd00:3::1"), addr("fd00:3::2"), addr("fd00:4::2")}
	got := probeUntil(t, w.sandbox, index, addresses, addr("10.3.0.2"), addr("fd00:3::2"))
	wantConflicts(t, got, Conflict{addr("10.3.0.2"), neighbourMAC}, Conflict{addr("fd00:3::2"), neighbourMAC})
	w.wantDown(t, w.path, "eth0")
}

// After a probing, the device can be configured as if nobody had probed, and the neighbour reaches it.
func TestProbeLeavesADeviceToBeConfigured(t *testing.T) {
	w, neighbour := newLAN(t)
	fresh.IP(t, neighbour, "addr add 10.3.0.9/24 dev eth0")
	fresh.IP(t, neighbour, "addr add fd00:3::9/64 dev eth0 nodad")
	want := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{
		{Prefix: prefix("10.3.0.2/24")}, {Prefix: prefix("fd00:3::2/64")},
	}}
	index := w.add(t, w.sandbox, want.Link)
	// The qdisc is left out, because every device that was ever up has one.
	state := func() string {
		return fresh.Run(t, w.path, "ip -o link | sed 's/qdisc [a-z]*//'; ip -o addr; ip -6 route show table all")
	}
	before := state()
	in := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2")}
	files := 0
	for range 2 {
		wantConflicts(t, must(w.sandbox.Probe(t.Context(), index, in, ProbeOptions{Count: 2, Wait: 20 * time.Millisecond}))(t))
		if after := state(); after != before {
			t.Errorf("after probing:\n%s\nbefore:\n%s", after, before)
		}
		open := len(must(os.ReadDir("/proc/self/fd"))(t))
		if files != 0 && open != files {
			t.Errorf("%d files are open after a probing, %d after the one before", open, files)
		}
		files = open
	}
	if err := w.sandbox.Configure(index, want, true); err != nil {
		t.Fatal(err)
	}
	for _, a := range in {
		fresh.Run(t, neighbour, "until ping -n -c 1 -W 1 "+a.String()+"; do :; done")
	}
}

// Both hear each other, although neither has the address.
func TestTwoThatProbeForTheSameAddress(t *testing.T) {
	w, _ := newLAN(t)
	first, second := bridge("eth0"), bridge("eth0")
	second.MAC = "02:00:00:00:00:02"
	other := must(Open(fresh.Sandbox(t)))(t)
	defer other.Close()
	firstIndex, secondIndex := w.add(t, w.sandbox, first), w.add(t, other, second)
	shared := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2")}
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		// Both probe for the whole time, because nobody else wants the address.
		p := ProbeOptions{Count: 5, Wait: wait}
		var seen [2][]Conflict
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() {
			seen[0], errs[0] = w.sandbox.Probe(t.Context(), firstIndex, append(shared, addr("10.3.0.3")), p)
		})
		both.Go(func() {
			seen[1], errs[1] = other.Probe(t.Context(), secondIndex, append(slices.Clone(shared), addr("10.3.0.4")), p)
		})
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		if hasAll(seen[0], shared) && hasAll(seen[1], shared) {
			wantConflicts(t, seen[0], Conflict{shared[0], second.MAC}, Conflict{shared[1], second.MAC})
			wantConflicts(t, seen[1], Conflict{shared[0], first.MAC}, Conflict{shared[1], first.MAC})
			return
		}
	}
}

// Somebody takes the address during the probing.
func TestProbeHearsOfAnAddressThatIsTakenMeanwhile(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	announcer := must(w.host.NewAnnouncer())(t)
	defer announcer.Close()
	parent := w.index(t, "lan0")
	rival := netstate.Interface{Link: netstate.Link{MAC: neighbourMAC}, Addresses: []netstate.Address{
		{Prefix: prefix("10.3.0.2/24")}, {Prefix: prefix("fd00:3::2/64")},
	}}
	probes := 0
	newHost(t, w, func([]byte) [][]byte {
		if probes++; probes == 5 {
			if err := announcer.Announce(parent, rival); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	in := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2")}
	got := must(w.sandbox.Probe(t.Context(), index, in, patient))(t)
	wantConflicts(t, got, Conflict{in[0], neighbourMAC}, Conflict{in[1], neighbourMAC})
}

// newHost plays hosts that Linux cannot play. Until the test ends, it calls answer for each probe on the parent's wire,
// and sends the frames that answer returns.
func newHost(t *testing.T, w *fixture, answer func(probe []byte) [][]byte) {
	t.Helper()
	index := w.index(t, "lan0")
	s := newSniffer(t, index)
	timeout := unix.NsecToTimeval(int64(20 * time.Millisecond))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hosting sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		hosting.Wait()
	})
	hosting.Go(func() {
		buf := make([]byte, 2048)
		for ctx.Err() == nil {
			size, from, err := unix.Recvfrom(s.fd, buf, 0)
			if err != nil || from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			// ParseClaim knows a probe, because another prober would hear it.
			if _, ok := wire.ParseClaim(buf[:size], nil, nil); !ok || !bytes.Equal(buf[6:12], probeMAC) {
				continue
			}
			for _, frame := range answer(bytes.Clone(buf[:size])) {
				if err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

var (
	probeMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	rivalMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
)

// A loop in the network returns the probes, with their own MAC or with that of a forwarder. A macvlan in private mode
// receives its own frames.
func TestProbeIgnoresItsOwnProbes(t *testing.T) {
	w, _ := newLAN(t)
	link := bridge("eth0")
	link.Macvlan.Mode = "private"
	index := w.add(t, w.sandbox, link)
	taken := []netip.Addr{addr("10.3.0.3"), addr("fd00:3::3")}
	newHost(t, w, func(probe []byte) [][]byte {
		forwarded := bytes.Clone(probe)
		copy(forwarded[6:], rivalMAC)
		frames := [][]byte{probe, forwarded}
		// It still hears the frames that follow.
		for _, a := range taken {
			frames = append(frames, wire.Announcement(rivalMAC, a))
		}
		return frames
	})
	var got []Conflict
	for round := 0; !hasAll(got, taken); round++ {
		// On a busy host a probe can come back during the next call, which has another nonce. So each call asks for another address.
		free := []netip.Addr{addr("10.3.0.2"), addr(fmt.Sprintf("fd00:3::2:%d", round))}
		wait := 20 * time.Millisecond << round
		got = must(w.sandbox.Probe(t.Context(), index, append(free, taken...), ProbeOptions{Count: 3, Wait: wait}))(t)
	}
	wantConflicts(t, got, Conflict{taken[0], neighbourMAC}, Conflict{taken[1], neighbourMAC})
}

// A frame that no host would send means nothing. A frame of a VLAN other than this link's means nothing either.
func TestProbeIgnoresFramesThatAreNoAnswer(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	free, taken := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2")}, []netip.Addr{addr("10.3.0.3"), addr("fd00:3::3")}
	newHost(t, w, func([]byte) (frames [][]byte) {
		for _, a := range free {
			whole := wire.Announcement(rivalMAC, a)
			for size := 14; size < len(whole); size++ {
				frames = append(frames, whole[:size])
			}
			frames = append(frames, wire.Tagged(bytes.Clone(whole), unix.ETH_P_8021Q, 3))
		}
		for _, a := range taken {
			frames = append(frames, wire.Announcement(rivalMAC, a))
		}
		return frames
	})
	got := probeUntil(t, w.sandbox, index, append(free, taken...), taken...)
	wantConflicts(t, got, Conflict{taken[0], neighbourMAC}, Conflict{taken[1], neighbourMAC})
}

// A frame of VLAN 0 only carries a priority. An answer in such a frame counts.
func TestProbeHeedsAnAnswerWithAPriority(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	in := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2")}
	newHost(t, w, func([]byte) (frames [][]byte) {
		for _, a := range in {
			frames = append(frames, wire.Tagged(wire.Announcement(rivalMAC, a), unix.ETH_P_8021Q, 0))
		}
		return frames
	})
	got := must(w.sandbox.Probe(t.Context(), index, in, patient))(t)
	wantConflicts(t, got, Conflict{in[0], neighbourMAC}, Conflict{in[1], neighbourMAC})
}

// Each round has a probe for each address. The number of rounds is the one in the options.
func TestProbeSendsAsManyAsItIsToldTo(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	s := newSniffer(t, w.index(t, "lan0"))
	in := []netip.Addr{addr("10.3.0.2"), addr("fd00:3::2"), addr("10.3.0.3")}
	wantConflicts(t, must(w.sandbox.Probe(t.Context(), index, in, ProbeOptions{Count: 3, Wait: time.Millisecond}))(t))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{}); err != nil {
		t.Fatal(err)
	}
	end := wire.Announcement(probeMAC, addr("10.3.0.4"))
	if err := unix.Sendto(s.fd, end, 0, &unix.SockaddrLinklayer{Ifindex: w.index(t, "lan1")}); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the end", func(frame []byte) bool { return bytes.Equal(frame, end) })
	sent := map[netip.Addr]int{}
	for _, frame := range s.seen {
		claim, ok := wire.ParseClaim(frame, nil, nil)
		if _, asked := sent[claim.Address]; ok && (asked || slices.Contains(in, claim.Address)) {
			sent[claim.Address]++
		}
	}
	if want := (map[netip.Addr]int{in[0]: 3, in[1]: 3, in[2]: 3}); !maps.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}

// An answer that arrives in time counts, even if it is read later.
func TestProbeCountsAnAnswerThatIsReadLate(t *testing.T) {
	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	in := []netip.Addr{addr("10.3.0.2"), addr("10.3.0.3")}
	for _, a := range in {
		if _, err := unix.Write(fds[0], wire.Announcement(rivalMAC, a)); err != nil {
			t.Fatal(err)
		}
	}
	pr := &prober{
		mac: probeMAC, solicitations: []Solicitation{{Target: in[0]}, {Target: in[1]}},
		sockets: map[bool]int{false: fds[1]},
		answers: map[netip.Addr]string{in[0]: "", in[1]: ""}, unanswered: 2,
	}
	if err := pr.listen(t.Context(), time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	wantConflicts(t, pr.conflicts(), Conflict{in[0], neighbourMAC}, Conflict{in[1], neighbourMAC})
}

func TestProbeEndsWithItsContext(t *testing.T) {
	w, neighbour := newLAN(t)
	fresh.IP(t, neighbour, "addr add 10.3.0.2/24 dev eth0")
	index := w.add(t, w.sandbox, bridge("eth0"))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := w.sandbox.Probe(ctx, 9999, nil, patient); err != nil {
		t.Errorf("error %v for no address", err)
	}
	probes := 0
	newHost(t, w, func([]byte) [][]byte {
		if probes++; probes == 3 {
			cancel()
		}
		return nil
	})
	for _, when := range []string{"meanwhile", "before"} {
		if _, err := w.sandbox.Probe(ctx, index, []netip.Addr{addr("10.3.0.1")}, patient); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want that of the context", when, err)
		}
		w.wantDown(t, w.path, "eth0")
	}
}

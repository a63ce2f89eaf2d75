package kernel

import (
	"bytes"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// The neighbours of a restored interface learn its addresses: the frames arrive at the other end of the wire.
func TestAnnounceTellsTheNeighbours(t *testing.T) {
	w := newFixture(t)
	i := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{
		{Prefix: prefix("10.3.0.2/24")}, {Prefix: prefix("fd00:3::2/64")},
	}}
	announcer := must(w.host.NewAnnouncer())(t)
	defer announcer.Close()
	sniffer := newSniffer(t, w.index(t, "lan1"))
	if err := announcer.Announce(w.index(t, "lan0"), i); err != nil {
		t.Fatal(err)
	}
	arp := unhex(t, "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a030002 000000000000 0a030002")
	na := unhex(t, "333300000001 020000000001 86dd 60000000 0020 3a ff"+
		"fd000003000000000000000000000002 ff020000000000000000000000000001"+
		"8800 5a93 20000000 fd000003000000000000000000000002 0201 020000000001")
	sniffer.await(t, "gratuitous ARP", func(frame []byte) bool { return bytes.Equal(frame, arp) })
	sniffer.await(t, "unsolicited neighbour advertisement", func(frame []byte) bool { return bytes.Equal(frame, na) })
}

// Close leaves the socket to the kernel, which deletes it soon.
func TestClosedAnnouncerIsGone(t *testing.T) {
	w := newFixture(t)
	sockets := func() int { return bytes.Count(must(os.ReadFile("/proc/thread-self/net/packet"))(t), []byte("\n")) - 1 }
	before := sockets()
	announcer := must(w.host.NewAnnouncer())(t)
	if sockets() != before+1 {
		t.Fatalf("%d packet sockets after %d", sockets(), before)
	}
	announcer.Close()
	for deadline := time.Now().Add(5 * time.Second); sockets() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the socket is still there")
		}
	}
}

type sniffer struct {
	fd   int
	seen [][]byte
}

func newSniffer(t *testing.T, index int) *sniffer {
	t.Helper()
	const allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, allProtocols)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	timeout := unix.NsecToTimeval(int64(2 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	return &sniffer{fd: fd}
}

// await reads until a frame matches. It first looks at the frames that were read before.
func (s *sniffer) await(t *testing.T, what string, match func([]byte) bool) {
	t.Helper()
	for i := 0; ; i++ {
		if i == len(s.seen) {
			buf := make([]byte, 2048)
			n, _, err := unix.Recvfrom(s.fd, buf, 0)
			if err != nil {
				t.Fatalf("%s was not seen among %d frames: %v", what, len(s.seen), err)
			}
			s.seen = append(s.seen, buf[:n])
		}
		if match(s.seen[i]) {
			return
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

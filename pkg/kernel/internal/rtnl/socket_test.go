package rtnl

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// newSocket returns a socket in the tests' own namespace.
func newSocket(t testing.TB) *Socket {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSocket(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// onDevice returns a request for the device of that index, 0 for all.
func onDevice(kind, index int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(kind, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	if info.Index = int32(index); index != 0 {
		info.Change = unix.IFF_UP
	}
	request.AddData(info)
	return request
}

// noDevice returns a request that sets down a device that does not exist.
func noDevice() Message {
	return Message{Request: onDevice(unix.RTM_SETLINK, 99999), Action: "set nothing down"}
}

func times(count int, m func() Message) []Message {
	var all []Message
	for range count {
		all = append(all, m())
	}
	return all
}

// names returns the names of the devices, as Dump reads them.
func names(t testing.TB, s *Socket) []string {
	t.Helper()
	var all []string
	err := s.Dump(Message{Request: onDevice(unix.RTM_GETLINK, 0), Action: "list devices"}, func() { all = nil }, func(payload []byte) error {
		return EachAttribute(payload, unix.SizeofIfInfomsg, func(a *Attribute) {
			if a.Type() == unix.IFLA_IFNAME {
				all = append(all, a.Text())
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The kernel works through a batch to its end. Each outcome is at its message's position.
func TestRunEachTellsEachOutcome(t *testing.T) {
	s := newSocket(t)
	lo := Message{Request: onDevice(unix.RTM_SETLINK, 1), Action: "set lo down"}
	outcomes := s.RunEach(noDevice(), lo, noDevice())
	if outcomes[1] != nil {
		t.Errorf("lo: %v", outcomes[1])
	}
	for _, i := range []int{0, 2} {
		if err := outcomes[i]; !errors.Is(err, unix.ENODEV) || err.Error() != "set nothing down: no such device" {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// If the first message fails, the messages that depend on it are not sent.
func TestRunAfterSendsNothingAfterAFailure(t *testing.T) {
	s := newSocket(t)
	rename := func(name string) Message {
		request := onDevice(unix.RTM_SETLINK, 1)
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
		return Message{Request: request, Action: "rename lo"}
	}
	outcomes, failed := s.RunAfter(noDevice(), rename("lo1"))
	if !errors.Is(failed, unix.ENODEV) || outcomes != nil {
		t.Errorf("%v, %v", failed, outcomes)
	}
	if all := names(t, s); !slices.Equal(all, []string{"lo"}) {
		t.Errorf("devices %v", all)
	}
	first := Message{Request: onDevice(unix.RTM_SETLINK, 1), Action: "set lo down"}
	if outcomes, failed = s.RunAfter(first, append(times(MaxBatch, noDevice), rename("lo1"))...); failed != nil || !errors.Is(errors.Join(outcomes...), unix.ENODEV) {
		t.Errorf("%v, %v", failed, outcomes)
	}
	if all := names(t, s); !slices.Equal(all, []string{"lo1"}) {
		t.Errorf("devices %v, want lo1", all)
	}
	if err := s.Run(rename("lo")); err != nil {
		t.Error(err)
	}
}

// No error is lost, even if there are more than fit the socket. The next answers arrive too.
func TestEveryErrorOfALargeBatchIsHeard(t *testing.T) {
	s := newSocket(t)
	batch := times(3*MaxBatch, noDevice)
	for range 2 {
		for i, err := range s.RunEach(batch...) {
			if !errors.Is(err, unix.ENODEV) {
				t.Fatalf("message %d: %v, want ENODEV", i, err)
			}
		}
	}
}

// A socket that has overflowed can be used again.
func TestASocketThatOverflowedIsOfUseAgain(t *testing.T) {
	s := newSocket(t)
	if err := unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(times(MaxBatch, noDevice)...); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("%v, want ENOBUFS", err)
	}
	if err := s.Run(noDevice()); !errors.Is(err, unix.ENODEV) {
		t.Errorf("and then %v, want ENODEV", err)
	}
}

// A process in the sandbox can send messages to the socket. The reader does not take them for messages of the kernel.
func TestForgedAnswersAreNotTaken(t *testing.T) {
	s, forger := newSocket(t), newSocket(t)
	address, err := unix.Getsockname(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	port := address.(*unix.SockaddrNetlink).Pid
	next := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0).Seq
	for seq := next; seq < next+20; seq++ {
		for _, kind := range []uint16{unix.NLMSG_DONE, unix.RTM_NEWLINK} {
			forged := onDevice(int(kind), 1)
			forged.Seq = seq
			if err := unix.Sendto(forger.FD(), forged.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all := names(t, s); !slices.Equal(all, []string{"lo"}) {
		t.Errorf("devices %v", all)
	}
}

// An error has the kernel's own words.
func TestErrorsHaveTheKernelsWords(t *testing.T) {
	s := newSocket(t)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("nosuchkind"))
	request.AddData(info)
	err := s.Run(Message{Request: request, Action: "create it"})
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), ": Unknown device type: ") {
		t.Errorf("%v", err)
	}
}

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// Streams are TCP connections from pods to the wire. Each pod sends a little at the same interval.
type Streams struct {
	interval time.Duration
	// pods and wire are the two ends of each connection.
	pods, wire []int
	stop       atomic.Bool
	done       sync.WaitGroup

	mu sync.Mutex
	// received has the times of what came from each pod. sent has the times of the rounds.
	received [][]time.Time
	sent     []time.Time
	broken   []error
}

// StartStreams opens a connection from each of the pods, which are paths of namespaces, to the IPv4 address on the wire,
// which is the namespace at wire. The caller stops it.
func StartStreams(wire string, address netip.Addr, pods []string, interval time.Duration) (*Streams, error) {
	s := &Streams{interval: interval, received: make([][]time.Time, len(pods))}
	if err := s.connect(wire, address, pods); err != nil {
		s.close()
		return nil, fmt.Errorf("streams: %w", err)
	}
	s.done.Go(s.send)
	s.done.Go(s.receive)
	return s, nil
}

func (s *Streams) connect(wire string, address netip.Addr, pods []string) error {
	listener, to := -1, &unix.SockaddrInet4{Addr: address.As4()}
	var err error
	if inErr := fresh.In(wire, func() { listener, err = listen(to) }); inErr != nil || err != nil {
		return errors.Join(inErr, err)
	}
	defer func() { _ = unix.Close(listener) }()
	at, err := unix.Getsockname(listener)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		var fd int
		if inErr := fresh.In(pod, func() { fd, err = dial(at) }); inErr != nil || err != nil {
			return errors.Join(inErr, err)
		}
		s.pods = append(s.pods, fd)
		end, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return err
		}
		s.wire = append(s.wire, end)
	}
	return nil
}

func listen(at unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fd, err
	}
	return fd, errors.Join(unix.Bind(fd, at), unix.Listen(fd, 1))
}

// dial returns a connection that sends at once and does not block once it is there.
func dial(to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fd, err
	}
	return fd, errors.Join(unix.Connect(fd, to), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true))
}

// goFirst makes the thread come before all others of the machine, so that it is seldom late. The thread ends with its
// goroutine. A machine of one processor would do nothing else then.
func goFirst() error {
	runtime.LockOSThread()
	if runtime.NumCPU() == 1 {
		return nil
	}
	const priority = 10
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0); err != nil {
		return fmt.Errorf("raise the priority: %w", err)
	}
	return nil
}

// sleepUntil sleeps in the kernel: the runtime's own timers may be late.
func sleepUntil(then time.Time) {
	if wait := unix.NsecToTimespec(time.Until(then).Nanoseconds()); wait.Nano() > 0 {
		_ = unix.Nanosleep(&wait, nil)
	}
}

func (s *Streams) send() {
	s.fail(goFirst())
	for next := time.Now(); !s.stop.Load(); sleepUntil(next) {
		s.mu.Lock()
		s.sent = append(s.sent, time.Now())
		s.mu.Unlock()
		for _, fd := range s.pods {
			if _, err := unix.Write(fd, []byte("here")); err != nil {
				s.fail(fmt.Errorf("send: %w", err))
				return
			}
		}
		next = next.Add(s.interval)
	}
}

func (s *Streams) receive() {
	s.fail(goFirst())
	buf := make([]byte, 4096)
	const looks = 10 // In one interval.
	for !s.stop.Load() {
		for i, fd := range s.wire {
			size, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil || size == 0 {
				s.fail(fmt.Errorf("stream %d ended: %w", i, err))
				return
			}
			s.mu.Lock()
			s.received[i] = append(s.received[i], time.Now())
			s.mu.Unlock()
		}
		sleepUntil(time.Now().Add(s.interval / looks))
	}
}

func (s *Streams) fail(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, err)
}

// Since returns the gaps between two arrivals from start to now. The error says that a connection broke.
func (s *Streams) Since(start time.Time) (g Gaps, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := time.Now()
	g.Late = longest(s.sent, start, end)
	for _, times := range s.received {
		g.Pods = append(g.Pods, longest(times, start, end))
	}
	return g, errors.Join(s.broken...)
}

// Stop ends the streams.
func (s *Streams) Stop() {
	s.stop.Store(true)
	s.done.Wait()
	s.close()
}

func (s *Streams) close() {
	for _, fd := range append(s.pods, s.wire...) {
		_ = unix.Close(fd)
	}
}

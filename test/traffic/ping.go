package traffic

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// Pings asks all pods for an answer at the same interval. The kernel of each pod answers.
type Pings struct {
	interval time.Duration
	fd       int
	pods     []netip.Addr
	place    map[[4]byte]int
	stop     atomic.Bool
	done     sync.WaitGroup

	// sent has the time of each round, in nanoseconds since begun. rounds is the number of them. There is no lock: the
	// thread that sends must not wait for one that gets no processor.
	begun  time.Time
	sent   [mostRounds]atomic.Int64
	rounds atomic.Int64

	mu sync.Mutex
	// answered says for each pod which rounds it has answered.
	answered []map[int]bool
	failed   error
}

// mostRounds is how many rounds fit the sequence number of a request.
const mostRounds = 1 << 16

// StartPings pings the IPv4 addresses from the namespace at the path. The caller stops it.
func StartPings(from string, pods []netip.Addr, interval time.Duration) (*Pings, error) {
	p := &Pings{interval: interval, pods: pods, begun: time.Now(), place: map[[4]byte]int{}, answered: make([]map[int]bool, len(pods))}
	for i, pod := range pods {
		p.place[pod.As4()], p.answered[i] = i, map[int]bool{}
	}
	var err error
	if inErr := fresh.In(from, func() { p.fd, err = pingSocket() }); inErr != nil {
		return nil, inErr
	}
	if err != nil {
		return nil, fmt.Errorf("ping: %w", err)
	}
	p.done.Go(p.send)
	p.done.Go(p.receive)
	return p, nil
}

func pingSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return -1, err
	}
	const room = 64 << 20
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, room); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
}

// send sends one round after the other. Its thread comes before all others of the machine, so that it is seldom late.
func (p *Pings) send() {
	if err := goFirst(); err != nil {
		p.fail(err)
	}
	next := time.Now()
	for round := 0; round < mostRounds && !p.stop.Load(); round++ {
		request := echoRequest(uint16(round))
		p.sent[round].Store(int64(time.Since(p.begun)))
		p.rounds.Store(int64(round + 1))
		for _, pod := range p.pods {
			// What cannot be sent is not answered, and counts as that.
			_ = unix.Sendto(p.fd, request, 0, &unix.SockaddrInet4{Addr: pod.As4()})
		}
		next = next.Add(p.interval)
		sleepUntil(next)
	}
}

func (p *Pings) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
}

// echoRequest returns an ICMP echo request (RFC 792).
func echoRequest(sequence uint16) []byte {
	const echo, identifier = 8, 0x726c
	b := make([]byte, 16)
	b[0] = echo
	binary.BigEndian.PutUint16(b[4:], identifier)
	binary.BigEndian.PutUint16(b[6:], sequence)
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum>>16+sum))
	return b
}

func (p *Pings) receive() {
	packet := make([]byte, 256)
	const ipv4Header, echoReply, shortest = 20, 0, 28
	for !p.stop.Load() {
		size, _, err := unix.Recvfrom(p.fd, packet, 0)
		if err != nil || size < shortest || packet[ipv4Header] != echoReply {
			continue
		}
		if i, known := p.place[[4]byte(packet[12:16])]; known {
			p.take(i, int(binary.BigEndian.Uint16(packet[ipv4Header+6:])))
		}
	}
}

// take notes the answer of the pod to the round.
func (p *Pings) take(pod, round int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered[pod][round] = true
}

// Gaps are the longest times between two answers, one for each pod, and what was lost.
type Gaps struct {
	// Pods has the longest gap of each pod.
	Pods []time.Duration
	// Sent is the number of requests to each pod. Lost is the number of answers that did not come, of all pods.
	Sent, Lost int
	// Late is the longest time between two rounds of requests. A gap can be no shorter than what this program was late.
	Late time.Duration
}

// Longest returns the longest gap of any pod.
func (g Gaps) Longest() time.Duration {
	if len(g.Pods) == 0 {
		return 0
	}
	return slices.Max(g.Pods)
}

// Median returns the median of the pods' longest gaps.
func (g Gaps) Median() time.Duration {
	if len(g.Pods) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(g.Pods))[len(g.Pods)/2]
}

// Since returns the gaps of the rounds from start on, but for the newest ones, whose answers may still come. A gap is the
// time from the last answered request before a lost one to the first answered one after it. A pod without a lost
// request has a gap of one interval at most, and counts with 0.
func (p *Pings) Since(start time.Time) (Gaps, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const underWay = 20
	var sent []time.Time
	for i := range int(p.rounds.Load()) - underWay {
		sent = append(sent, p.begun.Add(time.Duration(p.sent[i].Load())))
	}
	first, _ := slices.BinarySearchFunc(sent, start, time.Time.Compare)
	end := len(sent)
	g := Gaps{Late: longest(sent[first:], start, start), Sent: end - first}
	for _, answered := range p.answered {
		gap, last := time.Duration(0), first
		for round := first; round < end; round++ {
			switch {
			case !answered[round]:
				g.Lost++
				if round == end-1 {
					gap = max(gap, sent[round].Sub(sent[last]))
				}
			case round > last+1:
				gap = max(gap, sent[round].Sub(sent[last]))
				last = round
			default:
				last = round
			}
		}
		g.Pods = append(g.Pods, gap)
	}
	return g, p.failed
}

// longest returns the longest time between two of the times from start on. start and end count too.
func longest(times []time.Time, start, end time.Time) (gap time.Duration) {
	last := start
	for _, at := range times {
		if at.After(start) {
			gap, last = max(gap, at.Sub(last)), at
		}
	}
	return max(gap, end.Sub(last))
}

// Stop ends the pings.
func (p *Pings) Stop() {
	p.stop.Store(true)
	p.done.Wait()
	_ = unix.Close(p.fd)
}

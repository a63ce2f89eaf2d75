package services

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) {
	node.Main(m, func(ctx context.Context) error {
		_, err := Prepare(ctx)
		return err
	})
}

const (
	// answerTime is the longest time that an expected answer may take, on a busy machine too.
	answerTime = 30 * time.Second
	// silenceTime is how long nobody answers where no answer is expected. Broken paths stay broken.
	silenceTime = time.Second
)

// TestServices tries all rows under all conditions, with a kube-proxy in each mode.
func TestServices(t *testing.T) {
	fresh.Run(t, "", "ip link set lo up")
	a := startAPI(t)
	a.node(t)
	for _, s := range services() {
		a.service(t, s)
	}
	t.Run("modes", func(t *testing.T) { // Its end is the end of both, before that of the API.
		for _, mode := range []string{"iptables", "nftables"} {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				s := newTopology(t)
				s.attach(t)
				s.serve(t)
				forward(t, s.node)
				s.conditions(t, a, mode)
			})
		}
	})
}

// tried says whether to try the condition in this mode. Another kube-proxy takes seconds to start: make test tries each of those in one
// of the modes, and make test-long in both.
func tried(i int, c Condition, mode string) bool {
	return c.Proxy == nil || long() || (i%2 == 0) == (mode == "nftables")
}

// protocols are those by which a condition tries a connection. make test-long tries each by both. make test does so for the first
// condition, which is the document's table. Under the others it takes one in turn: no condition has to do with the protocol.
func protocols(first bool, turn int) []string {
	both := []string{"tcp", "udp"}
	if first || long() {
		return both
	}
	return both[turn%2:][:1]
}

func long() bool { return os.Getenv("RELINK_LONG") != "" }

// conditions tries one condition after the other. kube-proxy starts anew only if its configuration changes.
func (s *topology) conditions(t *testing.T, a *api, mode string) {
	end, config := s.proxy(t, a, mode, nil), fmt.Sprint(m(nil))
	configure := func(c m) {
		if text := fmt.Sprint(c); text != config {
			end()
			end, config = s.proxy(t, a, mode, c), text
		}
	}
	s.connections(t)
	for i, c := range Conditions {
		if c.Mode != "" && c.Mode != mode || !tried(i, c, mode) {
			continue
		}
		configure(c.Proxy)
		t.Run(c.Name, func(t *testing.T) { s.condition(t, i, c) })
	}
	configure(nil)
	s.forget(t)
	t.Run("reload", s.reload)
}

// condition tries all rows under the i-th condition.
func (s *topology) condition(t *testing.T, i int, c Condition) {
	s.forget(t)
	s.begin(t, c)
	defer s.end(t, c)
	var wait sync.WaitGroup
	atOnce := make(chan struct{}, 400) // Each has a thread.
	for turn, r := range Rows {
		for setting := range Settings {
			for _, family := range []int{4, 6} {
				turn++
				for _, network := range protocols(i == 0, turn+i) {
					wait.Go(func() {
						atOnce <- struct{}{}
						s.expect(t, c, r, setting, family, network)
						<-atOnce
					})
				}
			}
		}
	}
	wait.Wait()
}

// forget ends all connections that the node knows: kube-proxy with other settings does nothing to those that it has seen.
func (s *topology) forget(t *testing.T) {
	t.Helper()
	var err error
	if in := fresh.In(s.node, func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) }); in != nil || err != nil {
		t.Fatal(in, err)
	}
}

// begin makes the condition.
func (s *topology) begin(t *testing.T, c Condition) {
	t.Helper()
	s.onNode(t, c.Node)
	if c.Extra != nil {
		s.reach(t, append(slices.Clip(reached), c.Extra...))
	}
	if c.Followed {
		s.follow(t)
	}
	s.inPods(t, c.Pods)
}

// end takes the condition back. A pod that has lost something gets it back by relink.
func (s *topology) end(t *testing.T, c Condition) {
	t.Helper()
	s.onNode(t, c.UndoNode)
	s.inPods(t, c.UndoPods)
	if c.Extra != nil {
		s.reach(t, reached)
	}
	if c.Followed || c.Pods != "" && c.UndoPods == "" {
		s.follow(t)
	}
}

func (s *topology) onNode(t *testing.T, line string) {
	t.Helper()
	if line != "" {
		fresh.Run(t, s.node, line)
	}
}

func (s *topology) inPods(t *testing.T, line string) {
	t.Helper()
	if line == "" {
		return
	}
	for _, p := range s.pods() {
		fresh.Run(t, p.ns, line)
	}
}

// expect makes the connection of a row.
func (s *topology) expect(t *testing.T, c Condition, r Row, setting, family int, network string) {
	want := r.Seen
	if c.Differs != nil && (family == 4 || !c.IPv4) {
		if seen, differs := c.Differs(r); differs {
			want = seen
		}
	}
	limit := answerTime
	if want[setting] == None {
		limit = silenceTime
	}
	ns, own := s.client(r.From, setting)
	to := r.target(setting, family)
	seen, err := ask(ns, network, s.port(network), to, limit)
	if got := label(seen, own.of(family), r.From); got != want[setting] {
		t.Errorf("%s > %s > %s, with %s, %s of %s: the server sees %s (%s), not %s: %v", r.From, r.To, r.Backend, Settings[setting], network, to, got, seen, want[setting], err)
	}
}

// label says what the server sees as a Row does.
func label(seen, own, from string) string {
	ofNode := slices.Contains(nodeAddresses, seen)
	switch {
	case seen == "":
		return None
	case seen == own || ofNode && from == Node:
		return Own
	case ofNode:
		return Node1
	case strings.HasPrefix(seen, "172.17."):
		return Another
	}
	return seen
}

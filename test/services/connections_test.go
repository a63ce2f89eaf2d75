package services

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// Places of keys in Settings.
const (
	preserving  = 1
	masqueraded = 2
	both        = 3
)

// hold opens a connection to be used later.
func hold(t *testing.T, ns, to string, from net.Addr, option, value int) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: answerTime, LocalAddr: from, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if in := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, value) }); in != nil {
			return in
		}
		return err
	}}
	var c net.Conn
	var err error
	if in := fresh.In(ns, func() { c, err = d.Dial("tcp", to) }); in != nil || err != nil {
		t.Fatal(in, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// use sends and receives over a connection.
func use(c net.Conn, limit time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(limit))
	_, err := askTCP(c)
	return err
}

// connections are tests of single connections, with kube-proxy as for Rows.
func (s *topology) connections(t *testing.T) {
	for name, test := range map[string]func(*topology, *testing.T){
		"marks": (*topology).marks, "refused": (*topology).refused, "one tuple": (*topology).oneTuple,
	} {
		s.forget(t)
		t.Run(name, func(t *testing.T) { test(s, t) })
	}
}

// marks shows that the mark that an application sets on its packets stays, beside that of preserveSource.
func (s *topology) marks(t *testing.T) {
	client, server := s.clients[preserving], s.backends[preserving]
	for family, iptables := range map[int]string{4: "iptables", 6: "ip6tables"} {
		asks := countMarks(t, client, iptables, "--dport", applicationMark)
		answers := countMarks(t, server, iptables, "--sport", applicationMark|0x10000000)
		to := Connection{Pod, ClusterIP, SameNode}.target(preserving, family)
		if err := use(hold(t, client.ns, to, s.port("tcp"), syscall.SO_MARK, applicationMark), answerTime); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		for what, count := range map[string]func() (right, wrong string){"client": asks, "server": answers} {
			if right, wrong := count(); right == "0" || wrong != "0" {
				t.Errorf("%s, the %s's packets: %s with the right mark, %s with another one", to, what, right, wrong)
			}
		}
	}
}

// countMarks counts packets that leave the pod for the node, with the mark and with another one.
func countMarks(t *testing.T, p *pod, iptables, direction string, mark int) (count func() (right, wrong string)) {
	t.Helper()
	rule := fmt.Sprintf("POSTROUTING -o host0 -p tcp %s %d -m mark", direction, port)
	each := func(do string) string {
		return fmt.Sprintf("for m in '' !; do %s -w -t mangle -%s %s $m --mark %#x; done", iptables, do, rule, mark)
	}
	fresh.Run(t, p.ns, each("A"))
	return func() (right, wrong string) {
		counted := strings.Fields(fresh.Run(t, p.ns, iptables+" -w -t mangle -vnxL POSTROUTING | tail -n 2 | awk '{print $1}'; "+each("D")))
		if len(counted) != 2 {
			t.Fatal(counted)
		}
		return counted[0], counted[1]
	}
}

// refused shows that a client learns at once that nobody listens, with preserveSource: errors take the way of answers.
func (s *topology) refused(t *testing.T) {
	for _, family := range []int{4, 6} {
		for _, network := range []string{"tcp", "udp"} {
			to := net.JoinHostPort(nodeAddress.of(family), fmt.Sprint(nobody.nodePort))
			if _, err := ask(s.outside, network, s.port(network), to, answerTime); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s to %s: %v", network, to, err)
			}
		}
	}
}

// oneTuple is two connections from one port of a pod to another pod of the node: by the VLAN, and by a Service. With
// preserveSource they are the same to the backend, and the second one ends the first one. With masquerade they are not.
func (s *topology) oneTuple(t *testing.T) {
	for setting, lives := range map[int]bool{preserving: false, both: true} {
		p, from := s.clients[setting], s.port("tcp")
		direct := Connection{Pod, Direct, SameNode}.target(setting, 4)
		first := hold(t, p.ns, direct, from, syscall.SO_REUSEADDR, 1)
		second := hold(t, p.ns, Connection{Pod, ClusterIP, SameNode}.target(setting, 4), from, syscall.SO_REUSEADDR, 1)
		if err := use(second, answerTime); err != nil {
			t.Errorf("the Service, with %s: %v", Settings[setting], err)
		}
		limit := silenceTime
		if lives {
			limit = answerTime
		}
		if err := use(first, limit); (err == nil) != lives {
			t.Errorf("%s, with %s: %v", direct, Settings[setting], err)
		}
	}
}

// reload takes the node's uplink away and brings it back. The pods' connections through the node to another node go on. It is the
// last test of a topology: the uplink is the last one in the kernel's list of devices now.
func (s *topology) reload(t *testing.T) {
	p := s.clients[masqueraded]
	var all []net.Conn
	for range 10 {
		all = append(all, hold(t, p.ns, net.JoinHostPort(spread.cluster.v4, fmt.Sprint(port)), s.port("tcp"), syscall.SO_REUSEADDR, 1))
	}
	fresh.IP(t, s.node, "link del up0")
	s.follow(t)
	s.probe(t)
	s.plug(t, s.node, "up0", "nodes", "node")
	addresses(t, s.node, "up0", nodeAddress, "192.168.7.1", "fd00:7::1")
	s.follow(t)
	for _, c := range all {
		if err := use(c, answerTime); err != nil {
			t.Errorf("%s: %v", c.LocalAddr(), err)
		}
	}
	s.relink(t, "check")
	s.relink(t, "host-access", "show")
}

// probe asks all pods from the node, as the kubelet does.
func (s *topology) probe(t *testing.T) {
	t.Helper()
	for _, p := range s.pods() {
		for _, family := range []int{4, 6} {
			to := net.JoinHostPort(p.of(family), fmt.Sprint(port))
			if seen, err := ask(s.node, "tcp", s.port("tcp"), to, answerTime); err != nil {
				t.Errorf("a probe of %s: the pod sees %q: %v", p.name, seen, err)
			}
		}
	}
}

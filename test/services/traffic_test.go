package services

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// bulk is more than fits into one packet, so that a wrong MTU or checksum shows.
const bulk = 64 << 10

// applicationMark is the mark that all servers set on their packets.
const applicationMark = 0x539

func setMark(_, _ string, c syscall.RawConn) (err error) {
	in := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, applicationMark)
	})
	return errors.Join(in, err)
}

// serve answers in the namespace, by TCP and by UDP, with the address that the question came from. An empty host means all addresses.
func serve(t *testing.T, ns, host string, port int) {
	t.Helper()
	at := net.JoinHostPort(host, strconv.Itoa(port))
	var tcp net.Listener
	var udp net.PacketConn
	var err error
	in := fresh.In(ns, func() {
		var udpErr error
		marked := net.ListenConfig{Control: setMark}
		tcp, err = marked.Listen(t.Context(), "tcp", at)
		udp, udpErr = marked.ListenPacket(t.Context(), "udp", at)
		err = errors.Join(err, udpErr)
	})
	if in != nil || err != nil {
		t.Fatal(in, err)
	}
	t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	go serveTCP(tcp)
	go serveUDP(udp)
}

func serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // The test has ended.
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if n, _ := io.Copy(io.Discard, c); n == bulk {
				fmt.Fprintf(c, "%s\n%s", source(c.RemoteAddr()), make([]byte, bulk))
			}
		}()
	}
}

func serveUDP(c net.PacketConn) {
	buffer := make([]byte, 100)
	for {
		_, from, err := c.ReadFrom(buffer)
		if err != nil {
			return // The test has ended.
		}
		_, _ = c.WriteTo([]byte(source(from)), from) // The client asks again.
	}
}

func source(a net.Addr) string {
	return netip.MustParseAddrPort(a.String()).Addr().Unmap().String()
}

// port returns a port for a client. No two clients of a topology have the same: to a backend, a connection by the VLAN and one by a
// Service would be the same (oneTuple), and conntrack knows those by UDP for minutes. The kernel gives none of these ports, and
// kube-proxy listens on none.
func (s *topology) port(network string) net.Addr {
	const first, after = 11000, 30000
	p := first + int(s.ports.Add(1))
	if p >= after {
		panic("too many connections in one topology")
	}
	if network == "udp" {
		return &net.UDPAddr{Port: p}
	}
	return &net.TCPAddr{Port: p}
}

// ask asks a server from the namespace. It returns the address that the server saw.
func ask(ns, network string, from net.Addr, to string, limit time.Duration) (seen string, err error) {
	in := fresh.In(ns, func() {
		end := time.Now().Add(limit)
		d := net.Dialer{Deadline: end, LocalAddr: from}
		var c net.Conn
		if c, err = d.Dial(network, to); err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if network == "udp" {
			seen, err = askUDP(c, end)
			return
		}
		_ = c.SetDeadline(end)
		seen, err = askTCP(c)
	})
	return seen, errors.Join(in, err)
}

func askTCP(c net.Conn) (string, error) {
	if _, err := c.Write(make([]byte, bulk)); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if n, err := io.Copy(io.Discard, r); err != nil || n != bulk {
		return "", fmt.Errorf("%d bytes came: %w", n, err)
	}
	return strings.TrimSpace(line), nil
}

func askUDP(c net.Conn, end time.Time) (string, error) {
	buffer := make([]byte, 100)
	for {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
		_ = c.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
		n, err := c.Read(buffer)
		if err == nil {
			return string(buffer[:n]), nil
		}
		if time.Now().After(end) || errors.Is(err, syscall.ECONNREFUSED) {
			return "", err
		}
	}
}

package cluster

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// listener hears all that comes into a switch about addresses, and asks for each of them all the time.
type listener struct {
	// askers are the addresses that ask, one of each family. No pod has them.
	askers    []netip.Addr
	addresses []netip.Addr
	ports     []*pcapgo.EthernetHandle
	hearing   sync.WaitGroup
	asking    sync.WaitGroup
	end       chan struct{}

	mu    sync.Mutex
	all   []said
	lost  uint
	asked uint32
}

// askEvery is the time between two questions for one address.
const askEvery = 40 * time.Millisecond

// claimed passes ARP and neighbour advertisements that come into a port.
var claimed = []bpf.Instruction{
	bpf.LoadExtension{Num: bpf.ExtType},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 7},
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 6},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 4},
	bpf.LoadAbsolute{Off: 14 + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 2},
	bpf.LoadAbsolute{Off: 14 + 40, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: layers.ICMPv6TypeNeighborAdvertisement, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1514},
}

// listen listens at the ports of the bridge, in the namespace of a switch, and asks from the bridge. The end of the test ends it.
func listen(t *testing.T, namespace, bridge string, ports []string, askers, addresses []netip.Addr) *listener {
	t.Helper()
	l := &listener{askers: askers, addresses: addresses, end: make(chan struct{})}
	filter, err := bpf.Assemble(claimed)
	if err != nil {
		t.Fatal(err)
	}
	var asker int
	var from *net.Interface
	in := fresh.In(namespace, func() {
		for _, port := range ports {
			h, wrong := pcapgo.NewEthernetHandle(port)
			if wrong != nil {
				err = errors.Join(err, wrong)
				continue
			}
			l.ports = append(l.ports, h)
			err = errors.Join(err, h.SetBPF(filter))
			l.hearing.Go(func() { l.hear(port, h) })
		}
		var wrong error
		if from, wrong = net.InterfaceByName(bridge); wrong == nil {
			asker, wrong = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		}
		err = errors.Join(err, wrong)
	})
	t.Cleanup(func() { l.stop() })
	if err := errors.Join(in, err); err != nil {
		t.Fatal(err)
	}
	l.asking.Go(func() {
		defer func() { _ = unix.Close(asker) }()
		l.ask(t, asker, from.Index)
	})
	return l
}

// stop ends it, and returns all that was said.
func (l *listener) stop() []said {
	select {
	case <-l.end:
	default:
		close(l.end)
		l.asking.Wait()
		for _, h := range l.ports {
			if s, err := h.Stats(); err == nil {
				l.lost += uint(s.Drops)
			}
			_ = h.Close()
		}
		l.hearing.Wait()
	}
	return l.heard()
}

// heard returns what was said so far.
func (l *listener) heard() []said {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// hear notes what comes into the port, until the handle is closed.
func (l *listener) hear(port string, h *pcapgo.EthernetHandle) {
	for {
		frame, info, err := h.ReadPacketData()
		if err != nil {
			return
		}
		s, is := parseClaim(frame)
		if !is || !slices.Contains(l.addresses, s.address) {
			continue
		}
		s.at, s.port = info.Timestamp, port // The kernel's time, at which it came.
		l.mu.Lock()
		l.all = append(l.all, s)
		l.mu.Unlock()
	}
}

// parseClaim reads who says that it has which address. A host that probes for an address does not say that.
func parseClaim(frame []byte) (s said, is bool) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	e, is := p.LinkLayer().(*layers.Ethernet)
	if !is {
		return s, false
	}
	s.question = numberOf(e.DstMAC)
	if arp, is := p.Layer(layers.LayerTypeARP).(*layers.ARP); is {
		s.address, is = netip.AddrFromSlice(arp.SourceProtAddress)
		s.mac = net.HardwareAddr(arp.SourceHwAddress).String()
		return s, is
	}
	na, is := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if !is {
		return s, false
	}
	s.address, is = netip.AddrFromSlice(na.TargetAddress)
	s.mac = e.SrcMAC.String()
	for _, o := range na.Options {
		if o.Type == layers.ICMPv6OptTargetAddress {
			s.mac = net.HardwareAddr(o.Data).String()
		}
	}
	return s, is
}

// ask asks for each address, until the listener stops. Each round has a number.
func (l *listener) ask(t *testing.T, fd, device int) {
	to := &unix.SockaddrLinklayer{Ifindex: device}
	for tick := time.NewTicker(askEvery); ; {
		l.mu.Lock()
		l.asked++
		number := l.asked
		l.mu.Unlock()
		for _, a := range l.addresses {
			frame, err := solicitation(number, l.askers, a)
			if err == nil {
				err = unix.Sendto(fd, frame, 0, to)
			}
			if err != nil {
				t.Errorf("ask for %s: %v", a, os.NewSyscallError("sendto", err))
				return
			}
		}
		select {
		case <-l.end:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// macOf is the MAC that asks the question with that number. The answers go there, so each tells its question.
func macOf(number uint32) net.HardwareAddr {
	return binary.BigEndian.AppendUint32([]byte{2, 0x51}, number)
}

// numberOf returns the number of the question of that MAC, 0 if it asks none.
func numberOf(mac net.HardwareAddr) uint32 {
	if len(mac) != 6 || mac[0] != 2 || mac[1] != 0x51 {
		return 0
	}
	return binary.BigEndian.Uint32(mac[2:])
}

// solicitation is the frame by which a host asks for the MAC of an address: an ARP request (RFC 826) or a neighbour solicitation
// (RFC 4861).
func solicitation(number uint32, askers []netip.Addr, a netip.Addr) ([]byte, error) {
	mac, from := macOf(number), askers[0]
	if a.Is6() {
		from = askers[1]
	}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if a.Is4() {
		err := gopacket.SerializeLayers(b, options,
			&layers.Ethernet{SrcMAC: mac, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPRequest,
				SourceHwAddress: mac, SourceProtAddress: from.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: a.AsSlice()})
		return b.Bytes(), err
	}
	last := a.As16()
	group := append(netip.MustParseAddr("ff02::1:ff00:0").AsSlice()[:13], last[13:]...) // The solicited-node group (RFC 4291).
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: from.AsSlice(), DstIP: group}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	err := gopacket.SerializeLayers(b, options,
		&layers.Ethernet{SrcMAC: mac, DstMAC: append([]byte{0x33, 0x33}, group[12:]...), EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: a.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac}},
		})
	return b.Bytes(), err
}

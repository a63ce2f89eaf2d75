package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// answerReader reads one kind of the kernel's answers.
type answerReader struct {
	name   string
	header int
	// requests ask the kernel for answers of this kind.
	requests func(index int) []rtnl.Message
	read     func(n *Namespace, payload []byte) error
}

// answerReaders are all readers of answers.
var answerReaders = []answerReader{
	{"link", unix.SizeofIfInfomsg, func(int) []rtnl.Message { return []rtnl.Message{getLink("list", 0, "")} }, readLink},
	{"address", unix.SizeofIfAddrmsg, func(int) []rtnl.Message {
		return []rtnl.Message{newMessage(unix.RTM_GETADDR, 0, "list", nl.NewIfAddrmsg(unix.AF_UNSPEC))}
	}, func(_ *Namespace, payload []byte) error {
		a, err := parseAddress(payload)
		_, _ = a.String(), a.Validate()
		return err
	}},
	{"route", unix.SizeofRtMsg, func(int) []rtnl.Message {
		return []rtnl.Message{getRoutes(unix.AF_INET, 0), getRoutes(unix.AF_INET6, 0)}
	}, func(_ *Namespace, payload []byte) error {
		r, err := parseRoute(payload)
		_, _, _ = r.String(), r.rank(), r.isPlain()
		return err
	}},
	{"rule", sizeofRuleHeader, func(int) []rtnl.Message {
		return []rtnl.Message{newMessage(unix.RTM_GETRULE, 0, "list", ofFamily(unix.AF_INET)), newMessage(unix.RTM_GETRULE, 0, "list", ofFamily(unix.AF_INET6))}
	}, func(_ *Namespace, payload []byte) error {
		r, _, err := parseRule(payload)
		_ = r.String()
		return err
	}},
	{"neighbour", unix.SizeofNdMsg, func(int) []rtnl.Message {
		return []rtnl.Message{newMessage(unix.RTM_GETNEIGH, 0, "list", &netlink.Ndmsg{}), newMessage(unix.RTM_GETNEIGH, 0, "list", &netlink.Ndmsg{Flags: unix.NTF_PROXY})}
	}, func(_ *Namespace, payload []byte) error {
		neighbour, _, err := parseNeighbour(payload)
		_ = neighbour.String()
		return err
	}},
	{"MAC that is received", unix.SizeofNdMsg, func(int) []rtnl.Message {
		return []rtnl.Message{newMessage(unix.RTM_GETNEIGH, 0, "list", &netlink.Ndmsg{Family: unix.AF_BRIDGE})}
	}, func(_ *Namespace, payload []byte) error {
		_, _, err := parseFDBEntry(payload)
		return err
	}},
	{"neighbour table", nl.NewRtGenMsg().Len(), func(int) []rtnl.Message {
		return []rtnl.Message{newMessage(unix.RTM_GETNEIGHTBL, 0, "list", nl.NewRtGenMsg())}
	}, func(_ *Namespace, payload []byte) error {
		_, err := parseNeighbourParameters(payload)
		return err
	}},
	{"qdisc and filter", nl.SizeofTcMsg, func(index int) []rtnl.Message {
		return []rtnl.Message{
			newMessage(unix.RTM_GETQDISC, 0, "list", &nl.TcMsg{Ifindex: int32(index)}),
			newMessage(unix.RTM_GETTFILTER, 0, "list", &nl.TcMsg{Ifindex: int32(index), Parent: 0xffff0000}),
		}
	}, func(n *Namespace, payload []byte) error {
		a, err := parseTc(payload)
		if err != nil {
			return err
		}
		_, err = n.parseFilter(&netstate.Filter{Kind: a.kind}, a.options)
		return err
	}},
}

// readLink reads the link, and reads its data as every kind of link. A kernel can send any data with any kind.
func readLink(_ *Namespace, payload []byte) error {
	l, err := parseLink(payload)
	if err != nil {
		return err
	}
	for prefix, names := range devconf {
		l.setting(prefix + names[len(names)-1])
	}
	_, errs := l.parentIndex(), make([]error, 8)
	_, errs[0] = parseMacvlan(l.data)
	_, errs[1] = parseIPvlan(l.data)
	_, _, errs[2] = parseVLAN(l.data)
	_, _, errs[3] = parseBond(l.data)
	_, errs[4] = vrfTable(l.data)
	errs[5] = readFields(l.data, 0, field{iflaBrVLANFiltering, new(uint8)})
	_, errs[6] = parsePort(l.portData)
	_, errs[7] = attributeOf(l.data, 0, nl.IFLA_VXLAN_LINK)
	return errors.Join(errs...)
}

// collect returns the kernel's answers of this kind in the namespace.
func (r answerReader) collect(t testing.TB, n *Namespace, index int) [][]byte {
	t.Helper()
	var all [][]byte
	for _, request := range r.requests(index) {
		var some [][]byte
		err := n.socket.Dump(request, func() { some = nil }, func(payload []byte) error {
			some = append(some, bytes.Clone(payload))
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		all = append(all, some...)
	}
	return all
}

// cuts are the extras of the sandbox whose answers are cut. They give it something of every kind.
var cuts = []string{"IPv4 addresses", "IPv6 addresses", "routes with metrics", "several next hops", "rules", "neighbours", "a bridge"}

// A reader reads a cut answer, or one with a wrong length, or returns an error. It never panics.
func TestAnswersThatAreCutOff(t *testing.T) {
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}, true)
	fresh.Run(t, w.path, "ip link add other type bridge; ip link set other up; tc qdisc add dev eth0 ingress; "+
		"tc filter add dev eth0 parent ffff: protocol all prio 1 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev other")
	for _, name := range cuts {
		fresh.Run(t, w.path, extras[name])
	}
	index := must(w.sandbox.Index("eth0"))(t)
	for _, reader := range answerReaders {
		whole := reader.collect(t, w.sandbox, index)
		if len(whole) < 2 || reader.name == "qdisc and filter" && !bytes.Contains(bytes.Join(whole, nil), []byte("mirred")) {
			t.Errorf("%s: %d answers", reader.name, len(whole))
		}
		for _, payload := range whole {
			if err := reader.read(w.sandbox, payload); err != nil && reader.name != "link" { // A link has the data of only one kind.
				t.Errorf("%s, whole: %v", reader.name, err)
			}
			for size := range payload {
				err := reader.read(w.sandbox, payload[:size:size])
				if err != nil && !errors.Is(err, rtnl.ErrMalformed) || err == nil && size < reader.header {
					t.Errorf("%s, %d of %d bytes: error %v", reader.name, size, len(payload), err)
				}
			}
			shortened(payload, reader.header, func(changed []byte) {
				if err := reader.read(w.sandbox, changed); err != nil && !errors.Is(err, rtnl.ErrMalformed) {
					t.Errorf("%s, %x: error %v", reader.name, changed, err)
				}
			})
		}
	}
}

// shortened calls f with copies of the answer. In each copy one two-byte number is changed. Some of these numbers are
// the lengths of attributes.
func shortened(payload []byte, header int, f func([]byte)) {
	for at := header; at+2 <= len(payload); at += 4 {
		for _, size := range []uint16{0, 3, 4, 5, 6, 7, 8, 11, 0xffff} {
			changed := bytes.Clone(payload)
			binary.NativeEndian.PutUint16(changed[at:], size)
			f(changed)
		}
	}
}

// FuzzParseAnswer shows that no answer of any kernel makes a reader panic.
func FuzzParseAnswer(f *testing.F) {
	n, err := OpenHost()
	if err != nil {
		f.Fatal(err)
	}
	defer n.Close()
	for i, reader := range answerReaders {
		for _, payload := range reader.collect(f, n, 1) {
			f.Add(uint8(i), payload)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, payload []byte) {
		reader := answerReaders[int(i)%len(answerReaders)]
		before := bytes.Clone(payload)
		if err := reader.read(n, payload); err != nil && !errors.Is(err, rtnl.ErrMalformed) {
			t.Errorf("%s: %v", reader.name, err)
		}
		if !bytes.Equal(payload, before) {
			t.Errorf("%s: the answer was changed", reader.name)
		}
	})
}

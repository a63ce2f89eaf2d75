package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// one returns the bytes of one attribute.
func one(value ...byte) []byte { return nl.NewRtAttr(7, value).Serialize() }

// readers are all the ways to read a value.
var readers = map[string]func(*Attribute) any{
	"Uint8":         func(a *Attribute) any { return a.Uint8() },
	"Uint16":        func(a *Attribute) any { return a.Uint16() },
	"Uint32":        func(a *Attribute) any { return a.Uint32() },
	"Uint32At 4":    func(a *Attribute) any { return a.Uint32At(4) },
	"Int32":         func(a *Attribute) any { return a.Int32() },
	"NetworkUint16": func(a *Attribute) any { return a.NetworkUint16() },
	"NetworkUint64": func(a *Attribute) any { return a.NetworkUint64() },
	"Number 1":      func(a *Attribute) any { return a.Number(0, 1) },
	"Number 2":      func(a *Attribute) any { return a.Number(0, 2) },
	"Number 4":      func(a *Attribute) any { return a.Number(0, 4) },
	"Text":          func(a *Attribute) any { return a.Text() },
	"Address":       func(a *Attribute) any { return a.Address() },
	"Bytes":         func(a *Attribute) any { return string(a.Bytes(1, 2)) },
	"Value":         func(a *Attribute) any { return string(a.Value()) },
	"Copy":          func(a *Attribute) any { return string(a.Copy()) },
}

func TestAttributesAreRead(t *testing.T) {
	two, minusTwo := binary.NativeEndian.AppendUint16(nil, 2), binary.NativeEndian.AppendUint32(nil, 0xfffffffe)
	for _, test := range []struct {
		reader string
		value  []byte
		want   any
		reason string // The reason in ErrMalformed, empty for no error.
	}{
		{"Uint8", []byte{5}, uint8(5), ""},
		{"Uint8", nil, uint8(0), "length 0, want at least 1"},
		{"Uint16", append(two, 9, 9), uint16(2), ""}, // A newer kernel may send more bytes.
		{"Uint16", two[:1], uint16(0), "length 1, want at least 2"},
		{"Uint32", minusTwo, uint32(0xfffffffe), ""},
		{"Uint32", minusTwo[:3], uint32(0), "length 3, want at least 4"},
		{"Uint32At 4", append([]byte{0, 0, 0, 0}, minusTwo...), uint32(0xfffffffe), ""},
		{"Uint32At 4", minusTwo, uint32(0), "length 4, want at least 8"},
		{"Int32", minusTwo, -2, ""},
		{"Int32", nil, 0, "length 0, want at least 4"},
		{"NetworkUint16", []byte{0x81, 0x00}, uint16(0x8100), ""},
		{"NetworkUint16", []byte{0x81}, uint16(0), "length 1, want at least 2"},
		{"NetworkUint64", []byte{0, 0, 0, 0, 0, 0, 1, 2}, uint64(0x102), ""},
		{"NetworkUint64", make([]byte, 7), uint64(0), "length 7, want at least 8"},
		{"Number 1", []byte{7}, uint32(7), ""},
		{"Number 2", two, uint32(2), ""},
		{"Number 2", nil, uint32(0), "length 0, want at least 2"},
		{"Number 4", minusTwo, uint32(0xfffffffe), ""},
		{"Text", []byte("eth0\x00\x00"), "eth0", ""},
		{"Text", []byte("eth0"), "eth0", ""}, // nl.BytesToString panics.
		{"Text", nil, "", ""},
		{"Address", []byte{10, 3, 0, 2}, netip.MustParseAddr("10.3.0.2"), ""},
		{"Address", []byte{10, 3, 0}, netip.Addr{}, "length 3, want 4 or 16 for an IP address"},
		{"Address", nil, netip.Addr{}, "length 0, want 4 or 16 for an IP address"},
	} {
		var got any
		err := EachAttribute(one(test.value...), 0, func(a *Attribute) { got = readers[test.reader](a) })
		if got != test.want {
			t.Errorf("%s of %x: %v, want %v", test.reader, test.value, got, test.want)
		}
		switch {
		case test.reason == "" && err != nil:
			t.Errorf("%s of %x: %v", test.reader, test.value, err)
		case test.reason != "" && (!errors.Is(err, ErrMalformed) || err.Error() != "attribute 7: malformed answer of the kernel: "+test.reason):
			t.Errorf("%s of %x: %v, want %s", test.reader, test.value, err, test.reason)
		}
	}
}

func TestListsOfAttributesThatAreCutOff(t *testing.T) {
	header := []byte{1, 2, 3, 4}
	nested := nl.NewRtAttr(9, nil)
	nested.AddRtAttr(1, []byte{1, 2, 3, 4})
	short := nested.Serialize()
	short[4] = 200 // The attribute in it has a wrong length.
	for what, test := range map[string]struct {
		payload []byte
		reason  string
	}{
		"no header":        {header[:3], "length 3, less than the 4 of its header"},
		"nothing":          {header, ""},
		"cut off":          {append(header, one(1, 2, 3, 4)[:7]...), "an attribute of length 8, where 7 bytes are left"},
		"without padding":  {append(header, one(1, 2, 3)[:7]...), ""}, // nl.ParseRouteAttr panics.
		"shorter than one": {append(header, 3, 0, 0, 0), "an attribute of length 3, where 4 bytes are left"},
		"a rest":           {append(header, 4, 0, 0), ""},
		"in another one":   {append(header, short...), "attribute 9: malformed answer of the kernel: an attribute of length 200, where 8 bytes are left"},
	} {
		err := EachAttribute(test.payload, len(header), func(a *Attribute) {
			if a.Type() == 9 {
				a.Each(func(*Attribute) {})
			}
		})
		switch {
		case test.reason == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case test.reason != "" && (!errors.Is(err, ErrMalformed) || !strings.HasSuffix(err.Error(), test.reason)):
			t.Errorf("%s: %v, want %s", what, err, test.reason)
		}
	}
}

// After a value that cannot be read, the reader reads nothing else.
func TestNothingIsReadAfterAFailure(t *testing.T) {
	read := 0
	payload := append(one(1), one(2)...)
	err := EachAttribute(payload, 0, func(a *Attribute) {
		read++
		a.Uint32()
		a.Uint16()
		a.Each(func(*Attribute) { t.Error("a value that could not be read is read as a list") })
	})
	if want := "attribute 7: malformed answer of the kernel: length 1, want at least 4"; read != 1 || err == nil || err.Error() != want {
		t.Errorf("%d read, %v", read, err)
	}
}

func TestAcknowledgementsThatAreCutOff(t *testing.T) {
	words := nl.NewRtAttr(unix.NLMSGERR_ATTR_MSG, []byte("it is so\x00")).Serialize()
	enodev := binary.NativeEndian.AppendUint32(nil, 0xffffffff&^uint32(unix.ENODEV-1))
	for what, test := range map[string]struct {
		kind uint16
		data []byte
		want string
	}{
		"an error":                   {unix.NLMSG_ERROR, append(append(enodev, make([]byte, 16)...), words...), "no such device: it is so"},
		"the end of a list":          {unix.NLMSG_DONE, append(enodev[:4:4], words...), "no such device: it is so"},
		"words that are cut off":     {unix.NLMSG_DONE, append(enodev[:4:4], words[:len(words)-5]...), "no such device"},
		"a header that is cut off":   {unix.NLMSG_ERROR, append(enodev[:4:4], 1, 2, 3), "no such device"},
		"a number that is cut off":   {unix.NLMSG_ERROR, enodev[:3], "malformed answer of the kernel: an acknowledgement of length 3, want at least 4"},
		"not permitted":              {unix.NLMSG_DONE, binary.NativeEndian.AppendUint32(nil, 0xffffffff), "operation not permitted: relink must run as root (it needs CAP_NET_ADMIN)"},
		"not permitted, for a cause": {unix.NLMSG_DONE, append(binary.NativeEndian.AppendUint32(nil, 0xffffffff), words...), "operation not permitted: it is so"},
		"success":                    {unix.NLMSG_ERROR, make([]byte, 20), ""},
	} {
		m := &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: test.kind, Flags: unix.NLM_F_ACK_TLVS}, Data: test.data}
		got := ""
		if err := parseError(m); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

// FuzzEachAttribute shows that no answer makes the reader panic. The reader reads only the answer and does not change
// it. Its only error is ErrMalformed.
func FuzzEachAttribute(f *testing.F) {
	s := newSocket(f)
	for kind, payload := range map[int]nl.NetlinkRequestData{
		unix.RTM_GETLINK: nl.NewIfInfomsg(unix.AF_UNSPEC), unix.RTM_GETRULE: &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET}},
	} {
		request := nl.NewNetlinkRequest(kind, 0)
		request.AddData(payload)
		if err := s.Dump(Message{Request: request, Action: "list"}, func() {}, func(payload []byte) error {
			f.Add(bytes.Clone(payload), uint8(16))
			return nil
		}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, header uint8) {
		before := bytes.Clone(payload)
		for name, read := range readers {
			depth, attributes := 0, 0
			var each func(*Attribute)
			each = func(a *Attribute) {
				attributes++
				if len(a.Value()) > len(payload) || a.Type()&^typeMask != 0 {
					t.Errorf("attribute %d has %d bytes of %d", a.Type(), len(a.Value()), len(payload))
				}
				if read(a); depth < 4 && a.Type()%2 == 0 {
					depth++
					a.Each(each)
					depth--
				}
			}
			if err := EachAttribute(payload, int(header), each); err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
			if attributes > 5*len(payload) {
				t.Errorf("%d attributes in %d bytes", attributes, len(payload))
			}
		}
		_ = parseError(&syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: uint16(header) & 3, Flags: unix.NLM_F_ACK_TLVS}, Data: payload})
		if !bytes.Equal(payload, before) {
			t.Error("the answer was changed: " + fmt.Sprintf("%x", before))
		}
	})
}

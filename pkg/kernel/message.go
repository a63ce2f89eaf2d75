package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// newMessage returns a request of that type, made of a header and attributes.
func newMessage(kind, flags int, action string, parts ...nl.NetlinkRequestData) rtnl.Message {
	request := nl.NewNetlinkRequest(kind, flags)
	request.Data = parts
	return rtnl.Message{Request: request, Action: action}
}

// linkMessage returns a request of that type for the device of that index. The index is 0 for a
// device that has none yet. The request sets the flags in mask to those in flags.
func linkMessage(kind int, action string, index int, flags, mask uint32, attributes ...nl.NetlinkRequestData) rtnl.Message {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index, info.Flags, info.Change = int32(index), flags, mask
	m := newMessage(kind, 0, action, info)
	m.Add(attributes...)
	return m
}

// uint32Attr returns an attribute that is a number of four bytes, in the machine's order.
func uint32Attr[N ~int | ~int32 | ~uint32](attribute int, value N) *nl.RtAttr {
	return nl.NewRtAttr(attribute, nl.Uint32Attr(uint32(value)))
}

// textAttr returns an attribute that is a text.
func textAttr(attribute int, value string) *nl.RtAttr {
	return nl.NewRtAttr(attribute, nl.ZeroTerminated(value))
}

// field is an attribute of a message, and where its value belongs: the address of a number, a text or the like, or a codec.
type field struct {
	attr  int
	value any
}

// codec is a value whose form in a message has more to it than its type tells.
type codec interface {
	read(a *rtnl.Attribute)
	// write returns the form in a message. It is nil if the message has no such attribute then.
	write() []byte
}

// readField reads the attribute into the field that it belongs to. It returns false if there is none.
func readField(fields []field, a *rtnl.Attribute) bool {
	i := slices.IndexFunc(fields, func(f field) bool { return f.attr == int(a.Type()) })
	if i < 0 {
		return false
	}
	switch v := fields[i].value.(type) {
	case *uint8:
		*v = a.Uint8()
	case *uint32:
		*v = a.Uint32()
	case *int:
		*v = a.Int32()
	case **int:
		number := a.Int32()
		*v = &number
	case *string:
		*v = a.Text()
	case *netip.Addr:
		*v = a.Address()
	case *[]string:
		*v = append(*v, a.Text())
	case *[]byte:
		*v = a.Copy()
	case codec:
		v.read(a)
	}
	return true
}

// readFields reads the fields from the attributes behind a header of so many bytes.
func readFields(payload []byte, header int, fields ...field) error {
	return rtnl.EachAttribute(payload, header, func(a *rtnl.Attribute) { readField(fields, a) })
}

// attributeList is a request, or an attribute that is a list of attributes itself.
type attributeList interface {
	AddRtAttr(attribute int, value []byte) *nl.RtAttr
}

// addFields adds the fields that are not zero.
func addFields(list attributeList, fields ...field) {
	for _, f := range fields {
		if c, ok := f.value.(codec); ok {
			if value := c.write(); value != nil {
				list.AddRtAttr(f.attr, value)
			}
			continue
		}
		if reflect.ValueOf(f.value).Elem().IsZero() {
			continue
		}
		switch v := f.value.(type) {
		case *uint8:
			list.AddRtAttr(f.attr, nl.Uint8Attr(*v))
		case *uint32:
			list.AddRtAttr(f.attr, nl.Uint32Attr(*v))
		case *int:
			list.AddRtAttr(f.attr, nl.Uint32Attr(uint32(*v)))
		case **int:
			list.AddRtAttr(f.attr, nl.Uint32Attr(uint32(**v)))
		case *string:
			list.AddRtAttr(f.attr, nl.ZeroTerminated(*v))
		case *netip.Addr:
			list.AddRtAttr(f.attr, v.AsSlice())
		case *[]byte:
			list.AddRtAttr(f.attr, *v)
		}
	}
}

// nested is an attribute that is a list of attributes itself.
type nested []field

func (v nested) read(list *rtnl.Attribute) {
	list.Each(func(a *rtnl.Attribute) { readField(v, a) })
}

func (v nested) write() []byte {
	list := nl.NewRtAttr(0, nil)
	addFields(list, v...)
	return valueOf(list)
}

// valueOf returns what is behind the header of the attribute, nil for nothing.
func valueOf(attr *nl.RtAttr) []byte {
	if attr.Len() == unix.SizeofRtAttr {
		return nil
	}
	return attr.Serialize()[unix.SizeofRtAttr:]
}

// prefixed is an address whose prefix length is in the header of the message. A prefix of no bits is not written.
type prefixed struct {
	prefix *netip.Prefix
	bits   *uint8
}

func (v prefixed) read(a *rtnl.Attribute) {
	*v.prefix = netip.PrefixFrom(a.Address(), int(*v.bits))
	if !v.prefix.IsValid() {
		a.Fail(fmt.Errorf("%w: an address of length %d with a prefix of %d bits", rtnl.ErrMalformed, len(a.Value()), *v.bits))
	}
}

func (v prefixed) write() []byte {
	if v.prefix.Bits() <= 0 {
		return nil
	}
	*v.bits = uint8(v.prefix.Bits())
	return v.prefix.Addr().AsSlice()
}

// named is a number that has a name, the one at its place among the names.
type named struct {
	name   *string
	names  []string
	format netstate.Format
}

func (v named) read(a *rtnl.Attribute) {
	number := numberIn(a, v.format)
	if *v.name = fmt.Sprint(number); number < uint64(len(v.names)) && v.names[number] != "" {
		*v.name = v.names[number]
	}
}

// write writes a number that no kernel accepts for an unknown name.
func (v named) write() []byte { return encodeNumber(uint64(slices.Index(v.names, *v.name)), v.format) }

// macText is a MAC in the form of netstate.Link. It is empty for none, and for zeros.
type macText string

func (v *macText) read(a *rtnl.Attribute) {
	if slices.ContainsFunc(a.Value(), func(b byte) bool { return b != 0 }) {
		*v = macText(net.HardwareAddr(a.Value()).String())
	}
}

func (v *macText) write() []byte { return macBytes(string(*v)) }

// readNumber adds the number in the attribute to the values, unless it is the usual one. It returns false if the table does not have the
// attribute.
func readNumber(table []netstate.Number, a *rtnl.Attribute, values *netstate.Numbers) bool {
	i := slices.IndexFunc(table, func(n netstate.Number) bool { return n.Type == a.Type() })
	if i < 0 {
		return false
	}
	n := table[i]
	value := numberIn(a, n.Format)
	if value == n.Usual {
		return true
	}
	if *values == nil {
		*values = netstate.Numbers{}
	}
	(*values)[n.Name] = value
	return true
}

func numberIn(a *rtnl.Attribute, f netstate.Format) uint64 {
	switch half := int(f &^ netstate.Range); {
	case f == netstate.BigU64:
		return a.NetworkUint64()
	case f&netstate.Range != 0:
		return uint64(a.Number(0, half))<<32 | uint64(a.Number(half, half))
	}
	return uint64(a.Number(0, int(f)))
}

// addNumbers adds the values that the table has.
func addNumbers(list attributeList, table []netstate.Number, values netstate.Numbers) {
	for _, n := range table {
		if value, ok := values[n.Name]; ok {
			list.AddRtAttr(int(n.Type), encodeNumber(value, n.Format))
		}
	}
}

func encodeNumber(value uint64, f netstate.Format) []byte {
	switch f {
	case netstate.U8:
		return nl.Uint8Attr(uint8(value))
	case netstate.U16:
		return nl.Uint16Attr(uint16(value))
	case netstate.U32:
		return nl.Uint32Attr(uint32(value))
	case netstate.BigU64:
		return binary.BigEndian.AppendUint64(nil, value)
	}
	half := f &^ netstate.Range
	return append(encodeNumber(value>>32, half), encodeNumber(value, half)...)
}

// familyOf returns the number of the address's family.
func familyOf(address netip.Addr) int {
	if address.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// requests are requests, and the errors of those that cannot be made.
type requests struct {
	batch []rtnl.Message
	err   error
}

// add adds a request, or its error.
func (r *requests) add(m rtnl.Message, err error) {
	if r.err = errors.Join(r.err, err); err == nil {
		r.batch = append(r.batch, m)
	}
}

// addAll adds requests, and the errors of others.
func (r *requests) addAll(batch []rtnl.Message, err error) {
	r.batch, r.err = append(r.batch, batch...), errors.Join(r.err, err)
}

// runOn sends the requests. It returns all errors.
func (r *requests) runOn(n *Namespace) error { return errors.Join(r.err, n.socket.Run(r.batch...)) }

// requestsOf returns the request for each of the list. A request that cannot be made is left out, and its error is returned.
func requestsOf[T any](list []T, request func(T) (rtnl.Message, error)) (r requests) {
	for _, entry := range list {
		r.add(request(entry))
	}
	return r
}

// newDevice returns a request that makes a device with the flags set.
func newDevice(action, name string, index int, flags uint32) rtnl.Message {
	m := linkMessage(unix.RTM_NEWLINK, action, index, flags, flags, textAttr(unix.IFLA_IFNAME, name))
	m.Request.Flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	return m
}

// setLink returns a request that gives the device the attributes.
func setLink(action string, index int, attributes ...nl.NetlinkRequestData) rtnl.Message {
	return linkMessage(unix.RTM_SETLINK, action, index, 0, 0, attributes...)
}

// setUp returns the request that sets the device up.
func setUp(index int, name string) rtnl.Message {
	return linkMessage(unix.RTM_SETLINK, "set "+name+" up", index, unix.IFF_UP, unix.IFF_UP)
}

// setDown returns the request that sets the device down.
func setDown(index int, name string) rtnl.Message {
	return linkMessage(unix.RTM_SETLINK, "set "+name+" down", index, 0, unix.IFF_UP)
}

func deleteLink(index int, name string) rtnl.Message {
	return linkMessage(unix.RTM_DELLINK, "delete "+name, index, 0, 0)
}

// hasAttributes says whether a new device lacks something that setAttributes sets. A NIC always
// does, because it is not made: its MAC, MTU and the like are set.
func hasAttributes(link netstate.Link) bool {
	_, mask := flagBits(link.LinkFlags)
	return mask != 0 || link.Alias != "" || link.Kind == netstate.KindNIC
}

// setAttributes returns the request that sets the alias, the flags, and for a NIC or an end of a pair the MAC, MTU and
// the like. The kernel takes these only of a device that is there already.
func setAttributes(index int, link netstate.Link) rtnl.Message {
	flags, mask := flagBits(link.LinkFlags)
	m := linkMessage(unix.RTM_SETLINK, "set the attributes of "+link.Name, index, flags, mask)
	if link.Kind == netstate.KindNIC || link.Kind == netstate.KindVeth {
		m.Add(macAttr(link.MAC), uint32Attr(unix.IFLA_MTU, link.MTU))
		addSharedAttributes(m, link)
	}
	if link.Alias != "" {
		m.Add(nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(link.Alias)))
	}
	return m
}

// addSharedAttributes adds the attributes that SetAttributes sets on every kind of link, and setAttributes only on some.
func addSharedAttributes(m rtnl.Message, link netstate.Link) {
	m.Add(uint32Attr(unix.IFLA_GROUP, link.Group))
	addFields(m, field{unix.IFLA_TXQLEN, &link.TxQueueLen})
}

// macBytes returns the bytes of a MAC that netstate has validated. Of another text it returns none, which the kernel refuses.
func macBytes(mac string) net.HardwareAddr {
	b, _ := net.ParseMAC(mac)
	return b
}

func macAttr(mac string) *nl.RtAttr { return nl.NewRtAttr(unix.IFLA_ADDRESS, macBytes(mac)) }

// flagBits returns the bits of the flags, and the mask of those to change.
func flagBits(f netstate.LinkFlags) (flags, mask uint32) {
	for _, flag := range []struct {
		set bool
		bit uint32
	}{{f.Promiscuous, unix.IFF_PROMISC}, {f.AllMulticast, unix.IFF_ALLMULTI}, {f.NoARP, unix.IFF_NOARP}} {
		if flag.set {
			flags, mask = flags|flag.bit, mask|flag.bit
		}
	}
	if f.NoMulticast {
		mask |= unix.IFF_MULTICAST
	}
	return flags, mask
}

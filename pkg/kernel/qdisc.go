package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// qdiscs returns the queueing disciplines that somebody gave the device, with their filters. The
// notes name what cannot be described.
func (n *Namespace) qdiscs(index int) (qdiscs []netstate.Qdisc, notes []string, err error) {
	list := newMessage(unix.RTM_GETQDISC, 0, "list qdiscs", &nl.TcMsg{Ifindex: int32(index)})
	answers, err := listOf(n, list, func(payload []byte) (tcAnswer, bool, error) {
		a, err := parseTc(payload)
		return a, int(a.Ifindex) == index && a.Handle != 0, err // The qdiscs that the kernel gives every device have no handle.
	})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		q := netstate.Qdisc{Kind: a.kind, Handle: a.Handle, Parent: a.Parent, Options: a.options}
		if !slices.Contains(netstate.QdiscKinds, q.Kind) || q.Parent != netlink.HANDLE_ROOT && q.Parent != netlink.HANDLE_INGRESS {
			notes = append(notes, "qdisc "+q.String())
			continue
		}
		for _, hook := range hooks(q) {
			filters, unknown, err := n.filters(index, hook)
			if err != nil {
				return nil, nil, err
			}
			q.Filters, notes = append(q.Filters, filters...), append(notes, unknown...)
		}
		qdiscs = append(qdiscs, q)
	}
	return qdiscs, notes, nil
}

// hooks are the parents that filters of the qdisc can have.
func hooks(q netstate.Qdisc) []uint32 {
	switch q.Kind {
	case "ingress":
		return []uint32{q.Handle}
	case "clsact":
		return []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
	}
	return nil
}

// tcAnswer is an answer about a qdisc or a filter: its header, its kind and a copy of its options.
type tcAnswer struct {
	nl.TcMsg
	kind    string
	options []byte
}

func parseTc(payload []byte) (a tcAnswer, err error) {
	if err := rtnl.CheckHeader(payload, nl.SizeofTcMsg); err != nil {
		return a, err
	}
	a.TcMsg = *nl.DeserializeTcMsg(payload)
	err = readFields(payload, nl.SizeofTcMsg, field{nl.TCA_KIND, &a.kind}, field{nl.TCA_OPTIONS, &a.options})
	return a, err
}

// AddQdisc gives the interface of that index the queueing discipline and its filters. It replaces the qdisc that
// is there.
func (n *Namespace) AddQdisc(index int, q netstate.Qdisc) error {
	// If a request cannot be made, nothing is taken away.
	batch, err := n.addQdisc(index, q)
	if err != nil {
		return err
	}
	// The qdisc that is there may be the kernel's own, which cannot be removed.
	_ = n.socket.Run(newMessage(unix.RTM_DELQDISC, 0, "remove qdisc", &nl.TcMsg{Ifindex: int32(index), Parent: q.Parent}))
	return n.socket.Run(batch...)
}

// addQdisc returns the requests that make the qdisc and its filters.
func (n *Namespace) addQdisc(index int, q netstate.Qdisc) ([]rtnl.Message, error) {
	m := newMessage(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add qdisc "+q.String(),
		&nl.TcMsg{Ifindex: int32(index), Handle: q.Handle, Parent: q.Parent})
	addFields(m, field{nl.TCA_KIND, &q.Kind}, field{nl.TCA_OPTIONS, &q.Options})
	r := requests{batch: []rtnl.Message{m}}
	for _, f := range q.Filters {
		r.add(n.addFilter(index, f))
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.batch, nil
}

const (
	// u32Node are the bits in the handle of a u32 filter. The handle of a hash table has none of
	// them.
	u32Node = 0xfff
	// u32Flags is TCA_U32_FLAGS. askedFlags are the flags that somebody sets (linux/pkt_cls.h,
	// TCA_CLS_FLAGS_SKIP_HW and SKIP_SW).
	u32Flags   = 11
	askedFlags = 3
	mirredKind = "mirred"
)

// filters returns the filters of that parent, and notes those that cannot be described.
func (n *Namespace) filters(index int, parent uint32) (filters []netstate.Filter, notes []string, err error) {
	list := newMessage(unix.RTM_GETTFILTER, 0, "list filters", &nl.TcMsg{Ifindex: int32(index), Parent: parent})
	answers, err := listOf(n, list, func(payload []byte) (tcAnswer, bool, error) {
		a, err := parseTc(payload)
		// The list also has the tables that hold filters. The kernel makes these with the filters.
		return a, a.Handle != 0 && (a.kind != "u32" || a.Handle&u32Node != 0), err
	})
	if surplus := len(answers) - maxKept; surplus > 0 {
		notes = append(notes, fmt.Sprintf("filters beyond the %d that are kept of a qdisc: %d", maxKept, surplus))
		answers = answers[:maxKept]
	}
	for _, a := range answers {
		f := netstate.Filter{Kind: a.kind, Parent: parent, Info: a.Info}
		complete, err := n.parseFilter(&f, a.options)
		switch {
		case err != nil:
			return nil, nil, err
		case complete:
			filters = append(filters, f)
		default:
			notes = append(notes, fmt.Sprintf("filter %s of priority %d", a.kind, a.Info>>16))
		}
	}
	return filters, notes, err
}

// filterAttributes are the types of the attributes of a kind of filter (linux/pkt_cls.h).
type filterAttributes struct {
	classID, selector, flags, actions int
	// unknown are the attributes that cannot be described.
	unknown []int
}

func (attrs filterAttributes) fields(f *netstate.Filter) []field {
	return []field{{attrs.selector, &f.Selector}, {attrs.classID, &f.ClassID}, {attrs.flags, &f.Flags}}
}

var filterKinds = map[string]filterAttributes{
	"u32": {
		classID: nl.TCA_U32_CLASSID, selector: nl.TCA_U32_SEL, flags: u32Flags, actions: nl.TCA_U32_ACT,
		unknown: []int{nl.TCA_U32_POLICE, nl.TCA_U32_INDEV, nl.TCA_U32_MARK},
	},
	"matchall": {classID: nl.TCA_MATCHALL_CLASSID, flags: nl.TCA_MATCHALL_FLAGS, actions: nl.TCA_MATCHALL_ACT},
}

// parseFilter reads the options into the filter. complete says that they can all be described.
func (n *Namespace) parseFilter(f *netstate.Filter, options []byte) (complete bool, err error) {
	attrs, complete := filterKinds[f.Kind]
	if !complete {
		return false, nil
	}
	err = rtnl.EachAttribute(options, 0, func(a *rtnl.Attribute) {
		switch attr := int(a.Type()); {
		case readField(attrs.fields(f), a):
			f.Flags &= askedFlags
		case attr == attrs.actions:
			// Each action is in an attribute that is numbered from 1.
			a.Each(func(action *rtnl.Attribute) {
				r, ok := n.parseRedirect(action)
				f.Redirects = append(f.Redirects, r)
				complete = complete && ok
			})
		case slices.Contains(attrs.unknown, attr):
			complete = false
		}
	})
	return complete, err
}

// mirred is struct tc_mirred (linux/tc_act/tc_mirred.h).
type mirred struct {
	Index, Capabilities uint32
	Control             int32
	References, Bound   int32
	EAction             int32
	Device              uint32
}

// redirectFields are the attributes of an action.
func redirectFields(kind *string, params *[]byte) []field {
	return []field{{nl.TCA_ACT_KIND, kind}, {nl.TCA_ACT_OPTIONS, nested{{nl.TCA_MIRRED_PARMS, params}}}}
}

// parseRedirect reads an action. complete says that it is a redirect that can be described.
func (n *Namespace) parseRedirect(action *rtnl.Attribute) (r netstate.Redirect, complete bool) {
	var kind string
	var params []byte
	nested(redirectFields(&kind, &params)).read(action)
	var m mirred
	if _, err := binary.Decode(params, binary.NativeEndian, &m); err != nil || kind != mirredKind {
		return r, false
	}
	name, err := n.NameOf(int(m.Device))
	if err != nil {
		return r, false // The device is gone.
	}
	return netstate.Redirect{Device: name, EAction: m.EAction, Control: m.Control}, invalidName(name) == ""
}

// addFilter returns the request that makes the filter.
func (n *Namespace) addFilter(index int, f netstate.Filter) (rtnl.Message, error) {
	m := newMessage(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add filter "+f.Kind,
		&nl.TcMsg{Ifindex: int32(index), Parent: f.Parent, Info: f.Info}, textAttr(nl.TCA_KIND, f.Kind))
	options := m.AddRtAttr(nl.TCA_OPTIONS, nil)
	attrs := filterKinds[f.Kind]
	addFields(options, attrs.fields(&f)...)
	actions := options.AddRtAttr(attrs.actions, nil)
	for i, r := range f.Redirects {
		target, err := n.Index(r.Device)
		if err != nil {
			return m, fmt.Errorf("filter that redirects to %s: %w", r.Device, err)
		}
		kind := mirredKind
		params, err := binary.Append(nil, binary.NativeEndian, mirred{Control: r.Control, EAction: r.EAction, Device: uint32(target)})
		if err != nil {
			return m, err
		}
		addFields(actions.AddRtAttr(i+1, nil), redirectFields(&kind, &params)...)
	}
	return m, nil
}

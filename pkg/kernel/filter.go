package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// u32Node are the bits of a handle of a u32 filter that tell it from its hash
	// table.
	u32Node = 0xfff
	// u32Flags is TCA_U32_FLAGS, askedFlags those of it that somebody sets
	// (linux/pkt_cls.h, TCA_CLS_FLAGS_SKIP_HW and SKIP_SW).
	u32Flags   = 11
	askedFlags = 3
	// matchallClassID and its like are of linux/pkt_cls.h.
	matchallClassID, matchallAct, matchallFlags = nl.TCA_MATCHALL_CLASSID, nl.TCA_MATCHALL_ACT, nl.TCA_MATCHALL_FLAGS
	// sizeofMirred is that of struct tc_mirred: index, capabilities, control,
	// two counts, where, device.
	sizeofMirred = 28
)

// filters returns the filters of that parent, and says which of them can't be
// described.
func (n *Namespace) filters(index int, parent uint32) (filters []netstate.Filter, notes []string, err error) {
	type answer struct {
		header  nl.TcMsg
		kind    string
		options []byte
	}
	var answers []answer
	request := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, 0)
	request.AddData(&nl.TcMsg{Ifindex: int32(index), Parent: parent})
	err = n.socket.Dump(rtnl.Message{Request: request, What: "list filters"}, func() { answers = nil }, func(payload []byte) error {
		m, kind, options, err := parseTc(payload)
		// Others than filters are what holds them, and is made with them.
		if err == nil && m.Handle != 0 && (kind != "u32" || m.Handle&u32Node != 0) {
			answers = append(answers, answer{*m, kind, options})
		}
		return err
	})
	if surplus := len(answers) - maxKept; surplus > 0 {
		notes = append(notes, fmt.Sprintf("filters beyond the %d that are kept of a qdisc: %d", maxKept, surplus))
		answers = answers[:maxKept]
	}
	for _, a := range answers {
		f := netstate.Filter{Kind: a.kind, Parent: parent, Info: a.header.Info}
		known, err := n.parseFilter(&f, a.options)
		switch {
		case err != nil:
			return nil, nil, err
		case known:
			filters = append(filters, f)
		default:
			notes = append(notes, fmt.Sprintf("filter %s of priority %d", a.kind, a.header.Info>>16))
		}
	}
	return filters, notes, err
}

// parseFilter says whether the filter has nothing that can't be described.
func (n *Namespace) parseFilter(f *netstate.Filter, options []byte) (known bool, err error) {
	attrs, err := nl.ParseRouteAttr(options)
	if err != nil || f.Kind != "u32" && f.Kind != "matchall" {
		return false, err
	}
	known = true
	for _, a := range attrs {
		attr := int(a.Attr.Type & nlaTypeMask)
		switch {
		case f.Kind == "u32" && attr == nl.TCA_U32_CLASSID, f.Kind == "matchall" && attr == matchallClassID:
			f.ClassID = nl.NativeEndian().Uint32(a.Value)
		case f.Kind == "u32" && attr == nl.TCA_U32_SEL:
			f.Selector = a.Value
		case f.Kind == "u32" && attr == u32Flags, f.Kind == "matchall" && attr == matchallFlags:
			f.Flags = nl.NativeEndian().Uint32(a.Value) & askedFlags
		case f.Kind == "u32" && attr == nl.TCA_U32_ACT, f.Kind == "matchall" && attr == matchallAct:
			ok, err := n.parseActions(f, a.Value)
			if err != nil {
				return false, err
			}
			known = known && ok
		case f.Kind == "u32" && (attr == nl.TCA_U32_POLICE || attr == nl.TCA_U32_INDEV || attr == nl.TCA_U32_MARK):
			known = false
		}
	}
	return known, nil
}

// parseActions reads the filter's actions, each in an attribute that is numbered from 1.
func (n *Namespace) parseActions(f *netstate.Filter, b []byte) (known bool, err error) {
	actions, err := nl.ParseRouteAttr(b)
	if err != nil {
		return false, err
	}
	for _, action := range actions {
		r, ok, err := n.parseRedirect(action.Value)
		if err != nil || !ok {
			return false, err
		}
		f.Redirects = append(f.Redirects, r)
	}
	return true, nil
}

func (n *Namespace) parseRedirect(b []byte) (r netstate.Redirect, known bool, err error) {
	attrs, err := nl.ParseRouteAttr(b)
	for _, a := range attrs {
		switch a.Attr.Type & nlaTypeMask {
		case nl.TCA_ACT_KIND:
			known = nl.BytesToString(a.Value) == "mirred"
		case nl.TCA_ACT_OPTIONS:
			options, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return r, false, err
			}
			for _, o := range options {
				if o.Attr.Type&nlaTypeMask != nl.TCA_MIRRED_PARMS || len(o.Value) < sizeofMirred {
					continue
				}
				native := nl.NativeEndian()
				r.Control, r.Where = int32(native.Uint32(o.Value[8:])), int32(native.Uint32(o.Value[20:]))
				to, err := n.linkByIndex(int(native.Uint32(o.Value[24:])))
				if err != nil {
					return r, false, nil // To a device that is gone.
				}
				r.Device = to.name
			}
		}
	}
	return r, known && r.Device != "" && unnameable(r.Device) == "", err
}

// addFilter returns the request that makes the filter.
func (n *Namespace) addFilter(index int, f netstate.Filter) (rtnl.Message, error) {
	request := nl.NewNetlinkRequest(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	request.AddData(&nl.TcMsg{Ifindex: int32(index), Parent: f.Parent, Info: f.Info})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(f.Kind)))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	classID, act, flags := matchallClassID, matchallAct, matchallFlags
	if f.Kind == "u32" {
		classID, act, flags = nl.TCA_U32_CLASSID, nl.TCA_U32_ACT, u32Flags
		options.AddRtAttr(nl.TCA_U32_SEL, f.Selector)
	}
	if f.ClassID != 0 {
		options.AddRtAttr(classID, nl.Uint32Attr(f.ClassID))
	}
	if f.Flags != 0 {
		options.AddRtAttr(flags, nl.Uint32Attr(f.Flags))
	}
	actions := options.AddRtAttr(act, nil)
	for i, r := range f.Redirects {
		to, err := n.Index(r.Device)
		if err != nil {
			return rtnl.Message{}, fmt.Errorf("filter that redirects to %s: %w", r.Device, err)
		}
		action := actions.AddRtAttr(i+1, nil)
		action.AddRtAttr(nl.TCA_ACT_KIND, nl.ZeroTerminated("mirred"))
		params := make([]byte, sizeofMirred)
		native := binary.NativeEndian
		native.PutUint32(params[8:], uint32(r.Control))
		native.PutUint32(params[20:], uint32(r.Where))
		native.PutUint32(params[24:], uint32(to))
		action.AddRtAttr(nl.TCA_ACT_OPTIONS, nil).AddRtAttr(nl.TCA_MIRRED_PARMS, params)
	}
	request.AddData(options)
	return rtnl.Message{Request: request, What: "add filter " + f.Kind}, nil
}

package kernel

import (
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
	request := nl.NewNetlinkRequest(unix.RTM_GETQDISC, 0)
	request.AddData(&nl.TcMsg{Ifindex: int32(index)})
	err = n.socket.Dump(rtnl.Message{Request: request, Action: "list qdiscs"}, func() { qdiscs, notes = nil, nil }, func(payload []byte) error {
		m, kind, options, err := parseTc(payload)
		// The qdiscs that the kernel gives every device have no handle.
		if err != nil || int(m.Ifindex) != index || m.Handle == 0 {
			return err
		}
		if !slices.Contains(netstate.QdiscKinds, kind) || m.Parent != netlink.HANDLE_ROOT && m.Parent != netlink.HANDLE_INGRESS {
			notes = append(notes, fmt.Sprintf("qdisc %s %x:", kind, m.Handle>>16))
			return nil
		}
		qdiscs = append(qdiscs, netstate.Qdisc{Kind: kind, Handle: m.Handle, Parent: m.Parent, Options: options})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range qdiscs {
		q := &qdiscs[i]
		for _, hook := range hooks(*q) {
			filters, unknown, err := n.filters(index, hook)
			if err != nil {
				return nil, nil, err
			}
			q.Filters, notes = append(q.Filters, filters...), append(notes, unknown...)
		}
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

// parseTc returns the header, the kind and a copy of the options in an answer.
func parseTc(payload []byte) (m *nl.TcMsg, kind string, options []byte, err error) {
	if err := rtnl.CheckHeader(payload, nl.SizeofTcMsg); err != nil {
		return nil, "", nil, err
	}
	header := *nl.DeserializeTcMsg(payload)
	err = rtnl.EachAttribute(payload, nl.SizeofTcMsg, func(a *rtnl.Attribute) {
		switch a.Type() {
		case nl.TCA_KIND:
			kind = a.Text()
		case nl.TCA_OPTIONS:
			options = a.Copy()
		}
	})
	return &header, kind, options, err
}

// AddQdisc gives the interface the queueing discipline and its filters. It replaces the qdisc that
// is there.
func (n *Namespace) AddQdisc(ifName string, q netstate.Qdisc) error {
	index, err := n.Index(ifName)
	if err != nil {
		return err
	}
	// If a request cannot be made, nothing is taken away.
	batch, err := n.addQdisc(index, q)
	if err != nil {
		return err
	}
	remove := nl.NewNetlinkRequest(unix.RTM_DELQDISC, 0)
	remove.AddData(&nl.TcMsg{Ifindex: int32(index), Parent: q.Parent})
	// The qdisc that is there may be the kernel's own, which cannot be removed.
	_ = n.socket.Run(rtnl.Message{Request: remove, Action: "remove qdisc"})
	return n.socket.Run(batch...)
}

// addQdisc returns the requests that make the qdisc and its filters.
func (n *Namespace) addQdisc(index int, q netstate.Qdisc) ([]rtnl.Message, error) {
	request := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	request.AddData(&nl.TcMsg{Ifindex: int32(index), Handle: q.Handle, Parent: q.Parent})
	addText(request, nl.TCA_KIND, q.Kind)
	if len(q.Options) > 0 {
		request.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, q.Options))
	}
	batch := []rtnl.Message{{Request: request, Action: "add qdisc " + q.String()}}
	for _, f := range q.Filters {
		m, err := n.addFilter(index, f)
		if err != nil {
			return nil, err
		}
		batch = append(batch, m)
	}
	return batch, nil
}

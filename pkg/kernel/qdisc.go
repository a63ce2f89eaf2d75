package kernel

import (
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
	// The qdisc that is there may be the kernel's own, which cannot be removed.
	_ = n.socket.Run(newMessage(unix.RTM_DELQDISC, 0, "remove qdisc", &nl.TcMsg{Ifindex: int32(index), Parent: q.Parent}))
	return n.socket.Run(batch...)
}

// addQdisc returns the requests that make the qdisc and its filters.
func (n *Namespace) addQdisc(index int, q netstate.Qdisc) ([]rtnl.Message, error) {
	m := newMessage(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add qdisc "+q.String(),
		&nl.TcMsg{Ifindex: int32(index), Handle: q.Handle, Parent: q.Parent})
	addFields(m, []field{{nl.TCA_KIND, &q.Kind}, {nl.TCA_OPTIONS, &q.Options}})
	r := requests{batch: []rtnl.Message{m}}
	for _, f := range q.Filters {
		r.add(n.addFilter(index, f))
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.batch, nil
}

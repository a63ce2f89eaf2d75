package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// sizeofRuleHeader is the size of struct fib_rule_hdr (linux/fib_rules.h). It has the layout of
// struct rtmsg.
const (
	sizeofRuleHeader = unix.SizeofRtMsg
	ruleInvert       = 0x2
)

// Rules returns the policy rules of both families, also the kernel's own. The notes name those that cannot be described.
func (n *Namespace) Rules() (rules []netstate.Rule, notes []string, err error) {
	list := newMessage(unix.RTM_GETRULE, 0, "list rules", ofFamily(unix.AF_UNSPEC))
	err = n.socket.Dump(list, func() { rules, notes = nil, nil }, func(payload []byte) error {
		r, note, err := parseRule(payload)
		switch {
		case note != "":
			notes = append(notes, note)
		case r.Action != 0: // Otherwise it is of another family.
			rules = append(rules, r)
		}
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // A kernel without policy rules has none.
		return nil, nil, nil
	}
	return rules, notes, err
}

// parseRule returns the rule in an answer. It returns a note instead if the rule cannot be
// described, and neither for a rule of another family than IPv4 and IPv6, such as that of multicast.
func parseRule(payload []byte) (r netstate.Rule, note string, err error) {
	if err := rtnl.CheckHeader(payload, sizeofRuleHeader); err != nil {
		return r, "", err
	}
	m := nl.DeserializeRtMsg(payload)
	if m.Family != unix.AF_INET && m.Family != unix.AF_INET6 {
		return r, "", nil
	}
	// The action is at the place of the type in struct rtmsg.
	r = netstate.Rule{
		IPv6: m.Family == unix.AF_INET6, TOS: m.Tos, Action: m.Type, Table: uint32(m.Table), Invert: m.Flags&ruleInvert != 0,
	}
	fields := append(ruleFields(&r, m), field{nl.FRA_PRIORITY, &r.Priority})
	err = rtnl.EachAttribute(payload, sizeofRuleHeader, func(a *rtnl.Attribute) {
		if !readField(fields, a) && !readNumber(netstate.RuleSelectors, a, &r.Selectors) && a.Type() != nl.FRA_PAD {
			note = fmt.Sprintf("attribute %d", a.Type())
		}
	})
	if err != nil {
		return r, "", err
	}
	if note != "" {
		return r, fmt.Sprintf("rule %s: its %s", r, note), nil
	}
	if bad := invalidName(r.InputDevice, r.OutputDevice); bad != "" {
		named := r
		named.InputDevice, named.OutputDevice = "", ""
		return r, fmt.Sprintf("rule %s: it names %s", named, bad), nil
	}
	return r, "", nil
}

// ruleFields are the attributes of a rule that are alike in requests and answers.
func ruleFields(r *netstate.Rule, header *nl.RtMsg) []field {
	return []field{
		{nl.FRA_SRC, prefixed{&r.From, &header.Src_len}}, {nl.FRA_DST, prefixed{&r.To, &header.Dst_len}},
		{nl.FRA_IIFNAME, &r.InputDevice}, {nl.FRA_OIFNAME, &r.OutputDevice}, {nl.FRA_TABLE, &r.Table}, {nl.FRA_PROTOCOL, &r.Protocol},
	}
}

// addRule returns the request that makes the rule, if it is missing.
func addRule(r netstate.Rule) rtnl.Message {
	header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Tos: r.TOS, Type: r.Action}}
	if r.IPv6 {
		header.Family = unix.AF_INET6
	}
	if r.Invert {
		header.Flags = ruleInvert
	}
	m := newMessage(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add rule "+r.String(), header, uint32Attr(nl.FRA_PRIORITY, r.Priority))
	m.MayExist = true
	addFields(m, ruleFields(&r, header)...)
	addNumbers(m, netstate.RuleSelectors, r.Selectors)
	return m
}

package netstate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Rule is a policy rule (ip-rule(8)). Numbers are the kernel's (linux/fib_rules.h).
type Rule struct {
	// IPv6 says which of the two lists the rule is in.
	IPv6     bool         `json:"ipv6,omitempty"`
	Priority uint32       `json:"priority"`
	Invert   bool         `json:"invert,omitempty"`
	From     netip.Prefix `json:"from,omitzero"`
	To       netip.Prefix `json:"to,omitzero"`
	TOS      uint8        `json:"tos,omitempty"`
	// InputDevice and OutputDevice are names (iif, oif).
	InputDevice  string `json:"inputDevice,omitempty"`
	OutputDevice string `json:"outputDevice,omitempty"`
	Action       uint8  `json:"action"`
	Table        uint32 `json:"table,omitempty"`
	Protocol     uint8  `json:"protocol,omitempty"`
	// Selectors are the other selectors, by their names in ip-rule(8): fwmark, fwmask, goto, ipproto, ...
	Selectors Numbers `json:"selectors,omitempty"`
}

// String returns everything of the rule in the words of ip-rule(8). Two rules with the same String are the
// same.
func (r Rule) String() string {
	w := words{fmt.Sprintf("%d:", r.Priority)}
	w.add("inet6", r.IPv6)
	w.add("not", r.Invert)
	w.add("from", r.From)
	w.add("to", r.To)
	w.add("tos", r.TOS)
	w.add("iif", r.InputDevice)
	w.add("oif", r.OutputDevice)
	for _, name := range slices.Sorted(maps.Keys(r.Selectors)) {
		w.put(name, r.Selectors[name])
	}
	w.add("lookup", r.Table)
	if r.Action != actionLookup {
		w.put("action", r.Action)
	}
	w.add("protocol", r.Protocol)
	return w.String()
}

// actionLookup is FR_ACT_TO_TBL.
const actionLookup = 1

// Concerning returns the rules that concern the interface. They name it, or one of its addresses, or a table with
// routes of the interface that is not one of the kernel's own tables.
func Concerning(i Interface, rules []Rule) []Rule {
	type table struct {
		number uint32
		ipv6   bool
	}
	tables := setOf(i.Routes, func(r Route) table { return table{r.Table, r.Is6()} })
	var addresses []netip.Addr
	for _, a := range i.Addresses {
		addresses = append(addresses, a.Prefix.Addr())
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	var concerning []Rule
	for _, r := range rules {
		named := r.InputDevice == i.Link.Name || r.OutputDevice == i.Link.Name
		special := r.Table != 0 && (r.Table < tableDefault || r.Table > tableLocal)
		if named || covers(r.From, addresses) || covers(r.To, addresses) || special && tables[table{r.Table, r.IPv6}] {
			concerning = append(concerning, r)
		}
	}
	return concerning
}

// tableDefault and tableLocal are RT_TABLE_DEFAULT and RT_TABLE_LOCAL, with
// RT_TABLE_MAIN between them.
const (
	tableDefault = 253
	tableLocal   = 255
)

// covers says that somebody chose the prefix for one of the addresses. These are sorted: so it is enough to look
// at the first one that is not before the prefix.
func covers(p netip.Prefix, addresses []netip.Addr) bool {
	if !p.IsValid() || p.Bits() == 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(addresses, p.Masked().Addr(), netip.Addr.Compare)
	return i < len(addresses) && p.Contains(addresses[i])
}

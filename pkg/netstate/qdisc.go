package netstate

import (
	"fmt"
	"strings"
)

// Qdisc is a queueing discipline at the root of a device or at its ingress, with its
// filters. Its options are kept in the kernel's form: the attribute TCA_OPTIONS.
type Qdisc struct {
	Kind string `json:"kind"`
	// Handle and Parent are numbers of tc(8), 0x10000 for "1:".
	Handle  uint32   `json:"handle"`
	Parent  uint32   `json:"parent"`
	Options []byte   `json:"options,omitempty"`
	Filters []Filter `json:"filters,omitempty"`
}

func (q Qdisc) String() string { return fmt.Sprintf("%s %x:", q.Kind, q.Handle>>16) }

// detail returns everything about the qdisc, for two qdiscs with the same String. Options and selectors are in the kernel's
// form.
func (q Qdisc) detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s handle %x parent %x", q, q.Handle, q.Parent)
	if len(q.Options) > 0 {
		fmt.Fprintf(&b, " options %x", q.Options)
	}
	for _, f := range q.Filters {
		fmt.Fprintf(&b, ", filter %s parent %x info %x class %x flags %#x selector %x", f.Kind, f.Parent, f.Info, f.ClassID, f.Flags, f.Selector)
		for _, r := range f.Redirects {
			fmt.Fprintf(&b, " to %s (where %d, control %d)", r.Device, r.EAction, r.Control)
		}
	}
	return b.String()
}

// Filter is a filter of a Qdisc that hands packets to another device, as the
// bandwidth plugin makes it.
type Filter struct {
	// Kind is u32 or matchall.
	Kind string `json:"kind"`
	// Parent is the place of the filter, Info its priority and protocol (struct tcmsg).
	Parent  uint32 `json:"parent"`
	Info    uint32 `json:"info"`
	ClassID uint32 `json:"classID,omitempty"`
	// Selector is what a u32 filter matches, in the kernel's form (struct tc_u32_sel).
	Selector []byte `json:"selector,omitempty"`
	// Flags are skip_hw (1) and skip_sw (2).
	Flags     uint32     `json:"flags,omitempty"`
	Redirects []Redirect `json:"redirects,omitempty"`
}

// Redirect is an action mirred of a filter. Numbers are the kernel's
// (linux/tc_act/tc_mirred.h).
type Redirect struct {
	// Device is the name of a device in the sandbox.
	Device string `json:"device"`
	// EAction says whether the packet is copied or moved, and in which direction it goes. Control says what
	// becomes of the packet.
	EAction int32 `json:"where"`
	Control int32 `json:"control"`
}

// QdiscKinds are the kinds whose options the kernel accepts in the form in which it tells them.
var QdiscKinds = []string{"tbf", "ingress", "clsact", "fq_codel", "fq", "pfifo", "bfifo"}

// Equal says that both have the same options.
func (q Qdisc) Equal(qdisc Qdisc) bool { return q.detail() == qdisc.detail() }

package hostaccess

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
)

// The names of relink's chains.
const (
	inChain   = "RELINK-HOST-IN"
	outChain  = "RELINK-HOST-OUT"
	masqChain = "RELINK-MASQUERADE"
)

// returnChains are the chains in the pod. A connection that comes in through the node has the bit in its connection mark, and
// what the pod answers on it gets the bit, which leads to the table of returnRoutes. Only that one bit of a packet's mark is
// set: the others may be the application's (SO_MARK). Without preserveSource the chains have no rules, and go.
func (a Access) returnChains(netfilter.Family) []netfilter.Chain {
	const comment = `-m comment --comment "relink: %s" `
	bit := maskedMark(a.Mark)
	mark := fmt.Sprintf("-m connmark --mark %s -m conntrack --ctdir REPLY -j MARK --set-xmark %s", bit, bit)
	incoming := netfilter.Chain{Table: "mangle", Name: inChain, From: "PREROUTING", Comment: "relink: what came through the node"}
	outgoing := netfilter.Chain{Table: "mangle", Name: outChain, From: "OUTPUT", Comment: "relink: answers go back through the node"}
	if a.PreserveSource {
		incoming.Rules = []string{
			"-i " + a.Name + " " + fmt.Sprintf(comment, "remember it") + "-m conntrack --ctdir ORIGINAL -j CONNMARK --set-xmark " + bit,
			"! -i " + a.Name + " " + fmt.Sprintf(comment, "what a machine in the pod answers") + mark,
		}
		outgoing.Rules = []string{fmt.Sprintf(comment, "what the pod answers") + mark}
	}
	return []netfilter.Chain{incoming, outgoing}
}

// maskedMark is the bit as iptables prints it.
func maskedMark(bit uint32) string { return fmt.Sprintf("%#x/%#x", bit, bit) }

// inspectFilter compares the chains in the pod.
func (p Pod) inspectFilter(found *Inspection) {
	if !p.PreserveSource || p.WithoutFilter {
		return
	}
	differences, err := differencesOf(returnTables(p.Sandbox, familiesOf(p.Addresses), p.Access), "in the sandbox")
	found.FilterErr, found.wrongFilter = err, len(differences) > 0
	found.Differences = append(found.Differences, differences...)
}

func (p Pod) ensureFilter() error {
	if !p.PreserveSource {
		return nil
	}
	return returnTables(p.Sandbox, familiesOf(p.Addresses), p.Access).each((*netfilter.Tables).Ensure)
}

func returnTables(sandbox *kernel.Namespace, families []netfilter.Family, a Access) tables {
	return tables{sandbox, "preserveSource", families, a.returnChains}
}

// tables are the chains of some families in a namespace. key is that of the configuration that needs iptables.
type tables struct {
	ns       *kernel.Namespace
	key      string
	families []netfilter.Family
	chains   func(netfilter.Family) []netfilter.Chain
}

// each calls f for each family. It goes on after a failure, and returns all errors.
func (t tables) each(f func(*netfilter.Tables) error) error {
	if len(t.families) == 0 {
		return nil
	}
	return t.ns.Inside(func() error {
		var errs []error
		for _, family := range t.families {
			opened, err := netfilter.Open(family, t.chains(family)...)
			if err == nil {
				err = f(opened)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", t.key, err))
			}
		}
		return errors.Join(errs...)
	})
}

// differencesOf says what Ensure would change there, in one line for each family.
func differencesOf(t tables, place string) (lines []string, err error) {
	err = t.each(func(opened *netfilter.Tables) error {
		differences, err := opened.Differs()
		if len(differences) > 0 {
			line := fmt.Sprintf("rules of iptables for %s %s: %s", opened.Family, place, differences[0])
			if rest := len(differences) - 1; rest > 0 {
				line += fmt.Sprintf(", and %d more differ", rest)
			}
			lines = append(lines, line)
		}
		return err
	})
	return lines, err
}

// Masquerade is what the rules of iptables in the host do for all pods with masquerade, whose devices have names that begin alike. So no
// pod has a rule of its own, and a pod that comes or goes changes nothing.
type Masquerade struct {
	// Sources are what such packets get as their source, one for each family that a pod has.
	Sources []netip.Addr `json:"sources"`
	// Extra are the networks of all these pods' "extra".
	Extra []netip.Prefix `json:"extra,omitempty"`
	// Applied says that the rules were made. Without it, a kill may have left some of them.
	Applied bool `json:"applied"`
}

// MasqueradeOf is what the accesses need on the node.
func MasqueradeOf(node Node, accesses ...Access) (m Masquerade) {
	for _, a := range accesses {
		if !a.Masquerade {
			continue
		}
		needed := Masquerade{Extra: a.Extra}
		for _, r := range a.hostRoutes(node) {
			needed.Sources = append(needed.Sources, r.Source)
		}
		m = m.Join(needed)
	}
	return m
}

// Join adds what is needed, too. The sources are those of m, where it has some.
func (m Masquerade) Join(needed Masquerade) Masquerade {
	for _, s := range needed.Sources {
		if !m.source(s.Is6()).IsValid() {
			m.Sources = append(slices.Clip(m.Sources), s)
		}
	}
	m.Extra = slices.Concat(m.Extra, needed.Extra)
	slices.SortFunc(m.Extra, netip.Prefix.Compare)
	m.Extra = slices.Compact(m.Extra)
	return m
}

// source is that of the family. It is not valid if no pod has the family.
func (m Masquerade) source(ipv6 bool) (source netip.Addr) {
	if i := slices.IndexFunc(m.Sources, func(s netip.Addr) bool { return s.Is6() == ipv6 }); i >= 0 {
		source = m.Sources[i]
	}
	return source
}

// Covers says that the rules that were made for m do what needed needs.
func (m Masquerade) Covers(needed Masquerade) bool {
	return m.Applied && !slices.ContainsFunc(needed.Sources, func(s netip.Addr) bool { return !slices.Contains(m.Sources, s) }) &&
		!slices.ContainsFunc(needed.Extra, func(p netip.Prefix) bool { return !slices.Contains(m.Extra, p) })
}

// Same says that both need the same rules.
func (m Masquerade) Same(n Masquerade) bool {
	m.Applied, n.Applied = true, true
	return m.Covers(n) && n.Covers(m)
}

// chains returns the chains of the family. The first one knows the pods' devices, which the second one cannot see: it marks what begins a
// connection. The second one gives the node's address to what the node has translated, as to the backend of a Service, and to what
// "extra" names: a process in the pod can send anything else through the node, too, but without the node's address. The new source is
// written down (SNAT): the kernel's own choice (MASQUERADE) is another address than that of the routes, and the kernel cuts such
// connections when a NIC goes.
func (m Masquerade) chains(family netfilter.Family) []netfilter.Chain {
	forward := netfilter.Chain{Table: "mangle", Name: masqChain, From: "FORWARD", Comment: "relink: pods that reach others through the node"}
	nat := forward
	nat.Table, nat.From = "nat", "POSTROUTING"
	ipv6, bit := family == netfilter.IPv6, maskedMark(DefaultMark)
	if source := m.source(ipv6); source.IsValid() {
		forward.Rules = []string{"-i " + masqueradePrefix + "+ -m conntrack --ctstate NEW -j MARK --set-xmark " + bit}
		through := []string{"--ctstate DNAT"}
		for _, p := range m.Extra {
			if p.Addr().Is6() == ipv6 {
				// iptables prints a single address without a length here.
				through = append(through, "--ctorigdst "+strings.TrimSuffix(p.String(), fmt.Sprintf("/%d", p.Addr().BitLen())))
			}
		}
		for _, t := range through {
			nat.Rules = append(nat.Rules, fmt.Sprintf("-m mark --mark %s -m conntrack %s -j SNAT --to-source %s", bit, t, source))
		}
	}
	return []netfilter.Chain{forward, nat}
}

// tables are those of the families that m needs, or before needed.
func (m Masquerade) tables(host *kernel.Namespace, before Masquerade) tables {
	return tables{host, "masquerade", familiesOf(slices.Concat(m.Sources, before.Sources)), m.chains}
}

// Ensure makes the rules right. It takes the chains of a family away that only before needed.
func (m Masquerade) Ensure(host *kernel.Namespace, before Masquerade) error {
	return m.tables(host, before).each((*netfilter.Tables).Ensure)
}

// Differs says what Ensure would change.
func (m Masquerade) Differs(host *kernel.Namespace, before Masquerade) (differences []string, err error) {
	return differencesOf(m.tables(host, before), "in the host")
}

// familiesOf are those of the addresses.
func familiesOf(addresses []netip.Addr) (families []netfilter.Family) {
	for _, family := range netfilter.Families {
		if (Access{Addresses: addresses}).hasFamily(family == netfilter.IPv6) {
			families = append(families, family)
		}
	}
	return families
}

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

// HasIPTables returns netfilter.ErrNotInstalled if the node has no iptables at all.
func HasIPTables() error {
	if netfilter.Installed(netfilter.IPv6) == nil {
		return nil
	}
	return netfilter.Installed(netfilter.IPv4)
}

// returnChains are the chains in the pod. A connection that comes in through the node has the bit in its connection mark, and
// what the pod answers on it gets the bit, which leads to the table of returnRoutes. Only that one bit of a packet's mark is
// set: the others may be the application's (SO_MARK).
func (a Access) returnChains() []netfilter.Chain {
	const comment = ` -m comment --comment "relink: %s" `
	bit := fmt.Sprintf("%#x/%#x", a.Mark, a.Mark)
	mark := fmt.Sprintf("-m connmark --mark %s -m conntrack --ctdir REPLY -j MARK --set-xmark %s", bit, bit)
	return []netfilter.Chain{
		{Name: inChain, From: "PREROUTING", Comment: "relink: what came through the node", Rules: netfilter.Only(
			"-i "+a.Name+fmt.Sprintf(comment, "remember it")+"-m conntrack --ctdir ORIGINAL -j CONNMARK --set-xmark "+bit,
			"! -i "+a.Name+fmt.Sprintf(comment, "what a machine in the pod answers")+mark,
		)},
		{Name: outChain, From: "OUTPUT", Comment: "relink: answers go back through the node", Rules: netfilter.Only(
			strings.TrimSpace(fmt.Sprintf(comment, "what the pod answers")) + " " + mark,
		)},
	}
}

// inspectFilter compares the chains in the pod.
func (p Pod) inspectFilter(found *Inspection) {
	found.filterOK = true
	if !p.PreserveSource || p.WithoutFilter {
		return
	}
	found.FilterErr = p.withReturnChains(func(table *netfilter.Table) error {
		differences, err := table.Differs()
		if len(differences) > 0 {
			found.filterOK = false
			found.addDifference("rules of iptables for %s in the sandbox: %s", table.Family(), differenceLine(differences))
		}
		return err
	})
}

// differenceLine is one line for several differences.
func differenceLine(differences []string) string {
	if len(differences) == 1 {
		return differences[0]
	}
	return fmt.Sprintf("%d differ. One of them: %s", len(differences), differences[0])
}

func (p Pod) ensureFilter() error {
	if !p.PreserveSource {
		return nil
	}
	return p.withReturnChains((*netfilter.Table).Ensure)
}

func (p Pod) withReturnChains(f func(*netfilter.Table) error) error {
	return withTables(p.Sandbox, "preserveSource", "mangle", FamiliesOf(p.Access), func(netfilter.Family) []netfilter.Chain { return p.returnChains() }, f)
}

// removeReturnChains takes the chains from a pod that lives on.
func removeReturnChains(sandbox *kernel.Namespace, families []netfilter.Family) error {
	return withTables(sandbox, "preserveSource", "mangle", families, func(netfilter.Family) []netfilter.Chain {
		return []netfilter.Chain{{Name: inChain, Rules: netfilter.Only()}, {Name: outChain, Rules: netfilter.Only()}}
	}, (*netfilter.Table).Ensure)
}

// withTables opens the table of that name for each of the families in the namespace, and calls f with it. It goes on after a failure, and
// returns all errors. key is that of the configuration that needs iptables.
func withTables(ns *kernel.Namespace, key, name string, families []netfilter.Family, chains func(netfilter.Family) []netfilter.Chain, f func(*netfilter.Table) error) error {
	if len(families) == 0 {
		return nil
	}
	return ns.Inside(func() error {
		var errs []error
		for _, family := range families {
			table, err := netfilter.Open(family, name, chains(family)...)
			if err == nil {
				err = f(table)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", key, err))
			}
		}
		return errors.Join(errs...)
	})
}

// Masquerade is the chain of iptables in the host that all pods share. The accesses that ask for it have their rules there and no
// others of theirs, such as for an earlier address of the node. Keep says which other pods' rules stay, by the host's end.
type Masquerade struct {
	Node     Node
	Accesses []Access
	Keep     func(hostName string) bool
}

// chain returns the chain of the family.
func (m Masquerade) chain(family netfilter.Family) netfilter.Chain {
	var wanted []string
	hostNames := map[string]bool{}
	for _, a := range m.Accesses {
		if a.Masquerade {
			wanted = append(wanted, a.masqueradeRules(family, m.Node)...)
			hostNames[a.HostName] = true
		}
	}
	return netfilter.Chain{Name: masqChain, From: "POSTROUTING", Comment: "relink: pods that reach others through the node", Rules: func(current []string) []string {
		var rules []string
		for _, r := range current {
			if pod := masqueradedPod(r); slices.Contains(wanted, r) || pod != "" && !hostNames[pod] && m.Keep(pod) {
				rules = append(rules, r)
			}
		}
		for _, r := range wanted {
			if !slices.Contains(rules, r) {
				rules = append(rules, r)
			}
		}
		return rules
	}}
}

func (m Masquerade) withTables(host *kernel.Namespace, families []netfilter.Family, f func(*netfilter.Table) error) error {
	return withTables(host, "masquerade", "nat", families, func(family netfilter.Family) []netfilter.Chain {
		return []netfilter.Chain{m.chain(family)}
	}, f)
}

// Ensure makes the rules of these families right, and takes the chain away with its last rule.
func (m Masquerade) Ensure(host *kernel.Namespace, families ...netfilter.Family) error {
	return m.withTables(host, families, (*netfilter.Table).Ensure)
}

// Differs says what Ensure would change.
func (m Masquerade) Differs(host *kernel.Namespace, families ...netfilter.Family) (differences []string, err error) {
	err = m.withTables(host, families, func(table *netfilter.Table) error {
		found, err := table.Differs()
		for _, d := range found {
			differences = append(differences, fmt.Sprintf("%s in the host: %s", table.Family(), d))
		}
		return err
	})
	return differences, err
}

// masqueradeRules are the pod's rules in the chain that all pods share. Each names its pod by the host's end. They are for what the node
// has translated, as to the backend of a Service, and for what "extra" names: a process in the pod can send anything else through the
// node, too, but without the node's address. The new source is written down (SNAT): the kernel's own choice (MASQUERADE) is another
// address than that of the routes, and the kernel cuts such connections when a NIC goes.
func (a Access) masqueradeRules(family netfilter.Family, node Node) (rules []string) {
	ipv6 := family == netfilter.IPv6
	through := []string{"--ctstate DNAT"}
	for _, p := range a.Extra {
		if p.Addr().Is6() == ipv6 {
			through = append(through, ctOrigDst(p))
		}
	}
	for _, addr := range a.Addresses {
		for _, t := range through {
			if addr.Is6() == ipv6 {
				rules = append(rules, fmt.Sprintf("-s %s -m conntrack %s%s%s\" -j SNAT --to-source %s", singlePrefix(addr), t, masqComment, a.HostName, node.source(ipv6)))
			}
		}
	}
	return rules
}

// ctOrigDst is for connections that were to the network first. iptables prints a single address without a length there.
func ctOrigDst(p netip.Prefix) string {
	return "--ctorigdst " + strings.TrimSuffix(p.String(), fmt.Sprintf("/%d", p.Addr().BitLen()))
}

// masqComment begins the comment of a rule. The host's end comes next.
const masqComment = ` -m comment --comment "relink `

// masqueradedPod returns the host's end of the pod whose rule it is.
func masqueradedPod(rule string) string {
	_, text, _ := strings.Cut(rule, masqComment)
	name, _, _ := strings.Cut(text, `"`)
	return name
}

// FamiliesOf are those of the addresses of the accesses.
func FamiliesOf(accesses ...Access) (families []netfilter.Family) {
	for _, family := range netfilter.Families {
		if slices.ContainsFunc(accesses, func(a Access) bool { return a.hasFamily(family == netfilter.IPv6) }) {
			families = append(families, family)
		}
	}
	return families
}

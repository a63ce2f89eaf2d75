package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
)

const (
	// ownChains begins the names of relink's chains.
	ownChains = "RELINK-"
	inChain   = ownChains + "HOST-IN"
	outChain  = ownChains + "HOST-OUT"
	masqChain = ownChains + "MASQUERADE"
)

// ErrNoIPTables says that iptables is not installed, or not the variant that is in use.
var ErrNoIPTables = netfilter.ErrNotInstalled

// MayPass says that the error may be over at the next try: another program has the tables of iptables.
func MayPass(err error) bool {
	return errors.Is(err, netfilter.ErrLocked) || errors.Is(err, context.DeadlineExceeded)
}

// families are those of the pod's addresses.
func (a Access) families() (all []netfilter.Family) {
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if a.has(family == netfilter.IPv6) {
			all = append(all, family)
		}
	}
	return all
}

// returnChains are the chains in the pod. A connection that comes in through the node has the bit in its connection mark, and
// what the pod answers on it gets the bit, which leads to the table of returnRoutes. Only that one bit of a packet's mark is
// set: the others may be the application's (SO_MARK).
func (a Access) returnChains() []netfilter.Chain {
	bit := fmt.Sprintf("%#x/%#x", a.Mark, a.Mark)
	// As iptables prints them: the device comes before the comment.
	comment := func(text string, device []string, rule ...string) netfilter.Rule {
		return slices.Concat(device, []string{"-m", "comment", "--comment", "relink: " + text}, rule)
	}
	through, elsewhere := []string{"-i", a.Name}, []string{"!", "-i", a.Name}
	mark := []string{"-m", "connmark", "--mark", bit, "-m", "conntrack", "--ctdir", "REPLY", "-j", "MARK", "--set-xmark", bit}
	return []netfilter.Chain{
		{
			Table: "mangle", Name: inChain, From: "PREROUTING", JumpComment: "relink: what came through the node",
			Rules: []netfilter.Rule{
				comment("remember it", through, "-m", "conntrack", "--ctdir", "ORIGINAL", "-j", "CONNMARK", "--set-xmark", bit),
				comment("what a machine in the pod answers", elsewhere, mark...),
			},
		},
		{
			Table: "mangle", Name: outChain, From: "OUTPUT", JumpComment: "relink: answers go back through the node",
			Rules: []netfilter.Rule{comment("what the pod answers", nil, mark...)},
		},
	}
}

// lookAtFilter compares the chains in the pod.
func (p Pod) lookAtFilter(seen *Seen) error {
	seen.filtered = true
	if !p.PreserveSource || p.WithoutFilter {
		return nil
	}
	return p.Sandbox.Inside(func() error {
		for _, family := range p.families() {
			tables, err := netfilter.Open(family, ownChains)
			if err != nil {
				return keyed("preserveSource", err)
			}
			differences, err := tables.Differs(p.returnChains()...)
			if err != nil {
				return keyed("preserveSource", err)
			}
			if len(differences) > 0 {
				seen.filtered, seen.NodeOnly = false, false
				seen.say("rules of iptables for %s in the sandbox: %s", family, oneOf(differences))
			}
		}
		return nil
	})
}

// oneOf is one line for several differences.
func oneOf(differences []string) string {
	if len(differences) == 1 {
		return differences[0]
	}
	return fmt.Sprintf("%d differ. One of them: %s", len(differences), differences[0])
}

func (p Pod) ensureFilter() error {
	if !p.PreserveSource {
		return nil
	}
	return p.Sandbox.Inside(func() error {
		for _, family := range p.families() {
			tables, err := netfilter.Open(family, ownChains)
			if err == nil {
				err = tables.Ensure(p.returnChains()...)
			}
			if err != nil {
				return keyed("preserveSource", err)
			}
		}
		return nil
	})
}

// removeFilter takes the chains from a pod that lives on.
func (p Pod) removeFilter() error {
	if !p.PreserveSource {
		return nil
	}
	return p.Sandbox.Inside(func() error {
		for _, family := range p.families() {
			tables, err := netfilter.Open(family, ownChains)
			for _, name := range []string{inChain, outChain} {
				if err == nil {
					err = tables.Remove("mangle", name)
				}
			}
			if err != nil {
				return keyed("preserveSource", err)
			}
		}
		return nil
	})
}

// keyed names the key of the configuration that needs iptables.
func keyed(key string, err error) error { return fmt.Errorf("%q: %w", key, err) }

// masquerade is the chain in the host. All pods share it: each rule names its pod by the host's end. The new source is written
// down (SNAT): the kernel's own choice (MASQUERADE) is another address than that of the routes, and the kernel cuts such
// connections when a NIC goes.
func masquerade(addresses []netip.Addr, hostName string, node Node) netfilter.Chain {
	c := netfilter.Chain{Table: "nat", Name: masqChain, From: "POSTROUTING", JumpComment: "relink: pods that reach others through the node", Shared: true}
	for _, addr := range addresses {
		c.Rules = append(c.Rules, netfilter.Rule{
			"-s", single(addr).String(), "-m", "comment", "--comment", masqComment(hostName), "-j", "SNAT", "--to-source", node.source(addr).String(),
		})
	}
	return c
}

func masqComment(hostName string) string { return "relink " + hostName }

// of returns the addresses of the family.
func (a Access) of(family netfilter.Family) (addresses []netip.Addr) {
	for _, addr := range a.Addresses {
		if addr.Is6() == (family == netfilter.IPv6) {
			addresses = append(addresses, addr)
		}
	}
	return addresses
}

// inTables calls f with the host's tables of each of the families.
func inTables(host *kernel.Namespace, families []netfilter.Family, f func(netfilter.Family, *netfilter.Tables) error) error {
	if len(families) == 0 {
		return nil
	}
	return host.Inside(func() error {
		for _, family := range families {
			tables, err := netfilter.Open(family, ownChains)
			if err == nil {
				err = f(family, tables)
			}
			if err != nil {
				return keyed("masquerade", err)
			}
		}
		return nil
	})
}

// EnsureMasquerade makes the rules of iptables in the host for the accesses that ask for it, and takes away their rules for an
// earlier address of the node. It changes nothing that is right.
func EnsureMasquerade(host *kernel.Namespace, node Node, accesses ...Access) error {
	wanted := masquerading(accesses)
	return inTables(host, familiesOf(wanted), func(family netfilter.Family, tables *netfilter.Tables) error {
		chain := masqueradeOf(wanted, family, node)
		if err := tables.Ensure(chain); err != nil {
			return err
		}
		stale, err := staleOf(tables, chain)
		if err != nil || len(stale) == 0 {
			return err
		}
		return tables.RemoveRules(chain.Table, chain.Name, func(r netfilter.Rule) bool { return stale[r.String()] })
	})
}

// staleOf returns the rules of the chain's pods that the chain does not have.
func staleOf(tables *netfilter.Tables, chain netfilter.Chain) (map[string]bool, error) {
	rules, err := tables.Rules(chain.Table, chain.Name)
	if err != nil {
		return nil, err
	}
	ours, wanted := map[string]bool{}, map[string]bool{}
	for _, r := range chain.Rules {
		ours[r.Comment()], wanted[r.String()] = true, true
	}
	stale := map[string]bool{}
	for _, r := range rules {
		if ours[r.Comment()] && !wanted[r.String()] {
			stale[r.String()] = true
		}
	}
	return stale, nil
}

// MasqueradeDiffers says what EnsureMasquerade would change. It changes nothing. nodeOnly says that the rules have an earlier
// address of the node, and nothing else is wrong.
func MasqueradeDiffers(host *kernel.Namespace, node Node, accesses ...Access) (differences []string, nodeOnly bool, err error) {
	wanted := masquerading(accesses)
	nodeOnly = true
	err = inTables(host, familiesOf(wanted), func(family netfilter.Family, tables *netfilter.Tables) error {
		chain := masqueradeOf(wanted, family, node)
		found, err := tables.Differs(chain)
		for _, d := range found {
			differences = append(differences, fmt.Sprintf("%s in the host: %s", family, d))
		}
		if err != nil {
			return err
		}
		stale, err := staleOf(tables, chain)
		for r := range stale {
			differences = append(differences, fmt.Sprintf("%s in the host: rule is too much in %s: %s", family, chain.Name, r))
		}
		nodeOnly = nodeOnly && len(stale) == len(found)
		return err
	})
	return differences, nodeOnly && len(differences) > 0, err
}

func masquerading(accesses []Access) (wanted []Access) {
	for _, a := range accesses {
		if a.Masquerade {
			wanted = append(wanted, a)
		}
	}
	return wanted
}

func familiesOf(accesses []Access) (all []netfilter.Family) {
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		for _, a := range accesses {
			if a.has(family == netfilter.IPv6) {
				all = append(all, family)
				break
			}
		}
	}
	return all
}

func masqueradeOf(accesses []Access, family netfilter.Family, node Node) netfilter.Chain {
	chain := masquerade(nil, "", node)
	for _, a := range accesses {
		chain.Rules = append(chain.Rules, masquerade(a.of(family), a.HostName, node).Rules...)
	}
	return chain
}

// KeepMasquerade deletes the rules of all pods but those, and the chain with its last rule. Without iptables it returns
// ErrNoIPTables.
func KeepMasquerade(host *kernel.Namespace, keep func(hostName string) bool) error {
	goes := func(r netfilter.Rule) bool {
		const prefix = len("relink ")
		comment := r.Comment()
		return len(comment) < prefix || !keep(comment[prefix:])
	}
	return inTables(host, []netfilter.Family{netfilter.IPv4, netfilter.IPv6}, func(_ netfilter.Family, tables *netfilter.Tables) error {
		rules, err := tables.Rules("nat", masqChain)
		if err != nil {
			return err
		}
		kept := 0
		for _, r := range rules {
			if !goes(r) {
				kept++
			}
		}
		switch {
		case kept == 0:
			return tables.Remove("nat", masqChain)
		case kept < len(rules):
			return tables.RemoveRules("nat", masqChain, goes)
		}
		return nil
	})
}

// RemoveMasquerade deletes the rules of one pod.
func RemoveMasquerade(host *kernel.Namespace, hostName string) error {
	return KeepMasquerade(host, func(name string) bool { return name != hostName })
}

package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
)

const (
	// chainPrefix begins the names of relink's chains.
	chainPrefix = "RELINK-"
	inChain     = chainPrefix + "HOST-IN"
	outChain    = chainPrefix + "HOST-OUT"
	masqChain   = chainPrefix + "MASQUERADE"
)

// ErrNoIPTables says that iptables is not installed, or not the variant that is in use.
var ErrNoIPTables = netfilter.ErrNotInstalled

// HasIPTables returns ErrNoIPTables if the node has no iptables at all.
func HasIPTables() error {
	if netfilter.Installed(netfilter.IPv6) == nil {
		return nil
	}
	return netfilter.Installed(netfilter.IPv4)
}

// IsTransient says that the error may be over at the next try: another program has the tables of iptables.
func IsTransient(err error) bool {
	return errors.Is(err, netfilter.ErrLocked) || errors.Is(err, context.DeadlineExceeded)
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

// inspectFilter compares the chains in the pod.
func (p Pod) inspectFilter(found *Inspection) {
	found.filterOK = true
	if !p.PreserveSource || p.WithoutFilter {
		return
	}
	found.FilterErr = withTables(p.Sandbox, "preserveSource", FamiliesOf(p.Access), func(tables *netfilter.Tables) error {
		differences, err := tables.Differs(p.returnChains()...)
		if len(differences) > 0 {
			found.filterOK, found.NodeOnly = false, false
			found.addDifference("rules of iptables for %s in the sandbox: %s", tables.Family(), differenceLine(differences))
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
	return withTables(p.Sandbox, "preserveSource", FamiliesOf(p.Access), func(tables *netfilter.Tables) error { return tables.Ensure(p.returnChains()...) })
}

// removeReturnChains takes the chains from a pod that lives on, from each variant of iptables.
func removeReturnChains(sandbox *kernel.Namespace, families []netfilter.Family) error {
	return withTables(sandbox, "preserveSource", families, func(tables *netfilter.Tables) error {
		return eachVariant(tables, func(t *netfilter.Tables) error {
			return errors.Join(t.Remove("mangle", inChain), t.Remove("mangle", outChain))
		})
	})
}

// masqueradeRules are the pod's rules in the chain that all pods share. Each names its pod by the host's end. They are for what the node
// has translated, as to the backend of a Service, and for what "extra" names: a process in the pod can send anything else through the
// node, too, but without the node's address. The new source is written down (SNAT): the kernel's own choice (MASQUERADE) is another
// address than that of the routes, and the kernel cuts such connections when a NIC goes.
func (a Access) masqueradeRules(family netfilter.Family, node Node) (rules []netfilter.Rule) {
	through := [][]string{{"--ctstate", "DNAT"}}
	for _, p := range a.Extra {
		if p.Addr().Is6() == (family == netfilter.IPv6) {
			through = append(through, []string{"--ctorigdst", origDst(p)})
		}
	}
	for _, addr := range a.Addresses {
		if addr.Is6() != (family == netfilter.IPv6) {
			continue
		}
		for _, t := range through {
			rules = append(rules, slices.Concat(netfilter.Rule{"-s", singlePrefix(addr).String(), "-m", "conntrack"}, t, []string{
				"-m", "comment", "--comment", masqComment(a.HostName), "-j", "SNAT", "--to-source", node.source(addr.Is6()).String(),
			}))
		}
	}
	return rules
}

// origDst is the network as iptables prints it after --ctorigdst.
func origDst(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func masqComment(hostName string) string { return "relink " + hostName }

// withTables calls f with the tables of each of the families, in the namespace. It goes on after a failure, and returns all errors. key is
// that of the configuration that needs iptables.
func withTables(ns *kernel.Namespace, key string, families []netfilter.Family, f func(*netfilter.Tables) error) error {
	if len(families) == 0 {
		return nil
	}
	return ns.Inside(func() error {
		var errs []error
		for _, family := range families {
			tables, err := netfilter.Open(family, chainPrefix)
			if err == nil {
				err = f(tables)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", key, err))
			}
		}
		return errors.Join(errs...)
	})
}

// AddMasquerade makes the rules of iptables in the host for the accesses that ask for it. It changes nothing that is right.
func AddMasquerade(host *kernel.Namespace, node Node, accesses ...Access) error {
	return withMasquerade(host, node, accesses, func(tables *netfilter.Tables, chain netfilter.Chain) error { return tables.Ensure(chain) })
}

// EnsureMasquerade is AddMasquerade, and takes away the rules of these accesses for an earlier address of the node.
func EnsureMasquerade(host *kernel.Namespace, node Node, accesses ...Access) error {
	return withMasquerade(host, node, accesses, func(tables *netfilter.Tables, chain netfilter.Chain) error {
		if err := tables.Ensure(chain); err != nil {
			return err
		}
		stale := staleMatcher(chain)
		return tables.Keep(chain.Table, chain.Name, func(r netfilter.Rule) bool { return !stale(r) })
	})
}

// withMasquerade calls f with the host's tables and the chain as it should be, for each family that needs it.
func withMasquerade(host *kernel.Namespace, node Node, accesses []Access, f func(*netfilter.Tables, netfilter.Chain) error) error {
	wanted := Masquerading(accesses)
	return withTables(host, "masquerade", FamiliesOf(wanted...), func(tables *netfilter.Tables) error {
		return f(tables, masqueradeChain(wanted, tables.Family(), node))
	})
}

// staleMatcher returns a function that says of a rule that it is of one of the chain's pods, and that the chain does not have it.
func staleMatcher(chain netfilter.Chain) func(netfilter.Rule) bool {
	pods, rules := map[string]bool{}, map[string]bool{}
	for _, r := range chain.Rules {
		pods[r.Comment()], rules[r.Key()] = true, true
	}
	return func(r netfilter.Rule) bool { return pods[r.Comment()] && !rules[r.Key()] }
}

// MasqueradeDiffers says what EnsureMasquerade would change. It changes nothing. nodeOnly says that the rules have an earlier
// address of the node, and nothing else is wrong.
func MasqueradeDiffers(host *kernel.Namespace, node Node, accesses ...Access) (differences []string, nodeOnly bool, err error) {
	nodeOnly = true
	err = withMasquerade(host, node, accesses, func(tables *netfilter.Tables, chain netfilter.Chain) error {
		found, err := tables.Differs(chain)
		if err != nil {
			return err
		}
		rules, err := tables.Rules(chain.Table, chain.Name)
		if err != nil {
			return err
		}
		isStale, stale := staleMatcher(chain), []netfilter.Rule(nil)
		for _, r := range rules {
			if isStale(r) {
				stale = append(stale, r)
				found = append(found, fmt.Sprintf("rule is too much in %s: %s", chain.Name, r))
			}
		}
		nodeOnly = nodeOnly && len(found) == 2*len(stale) && hasPlaces(chain, rules)
		for _, d := range found {
			differences = append(differences, fmt.Sprintf("%s in the host: %s", tables.Family(), d))
		}
		return nil
	})
	return differences, nodeOnly && len(differences) > 0, err
}

// hasPlaces says that each rule of the chain is there, but for its new source.
func hasPlaces(chain netfilter.Chain, rules []netfilter.Rule) bool {
	place := func(r netfilter.Rule) string { return r[:len(r)-1].Key() } // The new source comes last.
	present := map[string]bool{}
	for _, r := range rules {
		if len(r) > 0 {
			present[place(r)] = true
		}
	}
	return !slices.ContainsFunc(chain.Rules, func(r netfilter.Rule) bool { return !present[place(r)] })
}

// Masquerading are the accesses that ask for masquerade.
func Masquerading(accesses []Access) []Access {
	return slices.DeleteFunc(slices.Clone(accesses), func(a Access) bool { return !a.Masquerade })
}

// FamiliesOf are those of the pods' addresses.
func FamiliesOf(accesses ...Access) (families []netfilter.Family) {
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if slices.ContainsFunc(accesses, func(a Access) bool { return a.hasFamily(family == netfilter.IPv6) }) {
			families = append(families, family)
		}
	}
	return families
}

func masqueradeChain(accesses []Access, family netfilter.Family, node Node) netfilter.Chain {
	chain := netfilter.Chain{Table: "nat", Name: masqChain, From: "POSTROUTING", JumpComment: "relink: pods that reach others through the node", Shared: true}
	for _, a := range accesses {
		chain.Rules = append(chain.Rules, a.masqueradeRules(family, node)...)
	}
	return chain
}

// KeepMasquerade deletes the rules of all pods but those, of these families and from each variant of iptables, and the chain with its
// last rule. Without iptables it returns ErrNoIPTables.
func KeepMasquerade(host *kernel.Namespace, families []netfilter.Family, keep func(hostName string) bool) error {
	wanted := func(r netfilter.Rule) bool {
		name, ours := strings.CutPrefix(r.Comment(), masqComment(""))
		return ours && keep(name)
	}
	return withTables(host, "masquerade", families, func(tables *netfilter.Tables) error {
		return eachVariant(tables, func(t *netfilter.Tables) error { return t.Keep("nat", masqChain, wanted) })
	})
}

// eachVariant calls f with the tables of each variant of iptables. The variant in use can have changed. The others may not work: only
// what may pass is an error there.
func eachVariant(inUse *netfilter.Tables, f func(*netfilter.Tables) error) error {
	errs := []error{f(inUse)}
	for _, tables := range inUse.OtherVariants() {
		if err := f(tables); IsTransient(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RemoveMasquerade deletes the rules of one pod.
func RemoveMasquerade(host *kernel.Namespace, families []netfilter.Family, hostName string) error {
	return KeepMasquerade(host, families, func(name string) bool { return name != hostName })
}

package netfilter

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) {
	fresh.Enter()
	// Each listing of a legacy table takes the lock. The machine's is for others.
	dir, err := os.MkdirTemp("", "netfilter")
	if err == nil {
		err = os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "lock"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// backend is a new namespace with one family and one variant.
type backend struct {
	family  Family
	variant variant
	path    string
}

func (p backend) program() string { return p.family.program() + "-" + string(p.variant) }

// run runs a shell command line there. IPT in it is the program.
func (p backend) run(t *testing.T, line string) string {
	t.Helper()
	return fresh.Run(t, p.path, strings.ReplaceAll(line, "IPT", p.program()))
}

// in calls f there.
func (p backend) in(t *testing.T, f func() error) {
	t.Helper()
	if err := p.try(f); err != nil {
		t.Errorf("%s: %v", p.program(), err)
	}
}

func (p backend) try(f func() error) error {
	var err error
	if entered := fresh.In(p.path, func() { err = f() }); entered != nil {
		return entered
	}
	return err
}

// with opens a table of the place's variant, as if the other was not installed.
func (p backend) with(t *testing.T, f func(*Tables) error, chains ...Chain) {
	t.Helper()
	p.in(t, func() error {
		table, err := p.open(chains...)
		if err != nil {
			return err
		}
		return f(table)
	})
}

func (p backend) open(chains ...Chain) (*Tables, error) {
	in, err := find(p.family, directories())
	if err != nil {
		return nil, err
	}
	table := &Tables{Family: p.family, chains: chains, variant: p.variant, path: in.path[p.variant], wait: patience, limit: limit}
	table.registered, err = legacyTables(p.family)
	return table, err
}

// ensure makes the chains, and makes sure that nothing differs then.
func (p backend) ensure(t *testing.T, chains ...Chain) {
	t.Helper()
	p.with(t, (*Tables).Ensure, chains...)
	p.with(t, checkNoDifference, chains...)
}

// address is one of the family.
func (p backend) address(n int) string {
	if p.family == IPv6 {
		return fmt.Sprintf("fd00:3::%x", n)
	}
	return fmt.Sprintf("10.3.0.%d", n)
}

// eachBackend runs the test for all variants and families, each in a namespace of its own.
func eachBackend(t *testing.T, test func(t *testing.T, p backend)) {
	t.Helper()
	for _, family := range []Family{IPv4, IPv6} {
		for _, v := range []variant{nft, legacy} {
			p := backend{family: family, variant: v}
			t.Run(p.program(), func(t *testing.T) {
				t.Parallel()
				p.path = fresh.Sandbox(t)
				test(t, p)
			})
		}
	}
}

// saveChain is a chain as in a pod: it saves a mark of the packets in that of the connections.
func saveChain() Chain {
	return Chain{
		Table: "mangle", Name: "RELINK-SAVE", From: "PREROUTING", Comment: "relink: to the chain",
		Rules: []string{
			`-i eth0 -m conntrack --ctstate NEW -m comment --comment "a \"quoted\" it\'s \\" -j CONNMARK --set-xmark 0x100/0x100`,
			"-i eth1 -m comment --comment other -j CONNMARK --set-xmark 0x0/0x100",
			"-i eth2 -m comment --comment third -j RETURN",
		},
	}
}

// restoreChain is the other chain in a pod.
func restoreChain() Chain {
	return Chain{
		Table: "mangle", Name: "RELINK-PUT", From: "OUTPUT", Comment: "relink: back",
		Rules: []string{"-m connmark --mark 0x100/0x100 -m comment --comment relink -j CONNMARK --restore-mark --nfmask 0x100 --ctmask 0x100"},
	}
}

// masquerade is a host's chain, with a rule for each of these networks.
func (p backend) masquerade(networks ...int) Chain {
	c := Chain{Table: "nat", Name: "RELINK-NAT", From: "POSTROUTING", Comment: "relink: out"}
	for _, n := range networks {
		c.Rules = append(c.Rules, fmt.Sprintf("-s %s -o eth+ -m comment --comment \"web %d\" -j MASQUERADE", p.address(n)+map[Family]string{IPv4: "/32", IPv6: "/128"}[p.family], n))
	}
	return c
}

// removed are the chains as they are when nobody needs them.
func removed(chains ...Chain) []Chain {
	for i := range chains {
		chains[i].Rules = nil
	}
	return chains
}

// checkNoDifference fails if the chains are not as they should be.
func checkNoDifference(t *Tables) error {
	differ, err := t.Differs()
	if err == nil && len(differ) > 0 {
		err = fmt.Errorf("differs: %s", strings.Join(differ, "; "))
	}
	return err
}

// foreign are the rules of others in a listing.
func foreign(listing string) string {
	lines := slices.DeleteFunc(strings.Split(listing, "\n"), func(line string) bool { return strings.Contains(line, "RELINK-") })
	return strings.Join(lines, "\n")
}

// sandbox is a new namespace.
func sandbox(t *testing.T) string {
	t.Helper()
	return fresh.Sandbox(t)
}

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

// with opens the tables of the place's variant.
func (p backend) with(t *testing.T, f func(*Tables) error) {
	t.Helper()
	p.in(t, func() error {
		tables, err := p.open()
		if err != nil {
			return err
		}
		return f(tables)
	})
}

// open opens the place's variant, as if the other was not installed.
func (p backend) open() (*Tables, error) {
	in, err := find(p.family, directories())
	if err != nil {
		return nil, err
	}
	namespace, err := os.Stat(ownNamespace)
	if err != nil {
		return nil, err
	}
	e := editor{family: p.family, path: in.path[p.variant], wait: patience, limit: limit}
	return &Tables{editor: e, owned: "RELINK-", chosen: choice{p.variant, "test"}, namespace: namespace}, nil
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
		Table: "mangle", Name: "RELINK-SAVE", From: "PREROUTING", JumpComment: "relink: to the chain",
		Rules: []Rule{
			{"-i", "eth0", "-m", "conntrack", "--ctstate", "NEW", "-m", "comment", "--comment", `a "quoted" it's \`, "-j", "CONNMARK", "--set-xmark", "0x100/0x100"},
			{"-i", "eth1", "-m", "comment", "--comment", "other", "-j", "CONNMARK", "--set-xmark", "0x0/0x100"},
			{"-i", "eth2", "-m", "comment", "--comment", "third", "-j", "RETURN"},
		},
	}
}

// restoreChain is the other chain in a pod.
func restoreChain() Chain {
	return Chain{
		Table: "mangle", Name: "RELINK-PUT", From: "OUTPUT", JumpComment: "relink",
		Rules: []Rule{{"-m", "connmark", "--mark", "0x100/0x100", "-m", "comment", "--comment", "relink", "-j", "CONNMARK", "--restore-mark", "--nfmask", "0x100", "--ctmask", "0x100"}},
	}
}

// masquerade is a host's chain with the rule of a pod.
func (p backend) masquerade(n int) Chain {
	return Chain{
		Table: "nat", Name: "RELINK-NAT", From: "POSTROUTING", JumpComment: "relink", Shared: true,
		Rules: []Rule{{"-s", p.address(n), "-o", "eth+", "-m", "comment", "--comment", fmt.Sprintf("shop/web-%d", n), "-j", "MASQUERADE"}},
	}
}

// checkNoDifference fails the test if the chains are not as they should be.
func checkNoDifference(t *Tables, chains ...Chain) error {
	differ, err := t.Differs(chains...)
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

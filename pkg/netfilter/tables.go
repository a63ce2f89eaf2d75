package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Family is a family of addresses. Each has chains and programs of its own.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families are all of them.
var Families = []Family{IPv4, IPv6}

// String is "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// program is the name of the family's program.
func (f Family) program() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Table is one table of one family in one network namespace.
type Table struct {
	family Family
	// name is mangle or nat, for example.
	name    string
	chains  []Chain
	variant variant
	path    string
	// registered are the names of the family's legacy tables.
	registered []string
	// wait and limit are patience and limit but for tests.
	wait  int
	limit time.Duration
}

// Open finds the iptables of the family that is in use in the namespace of the calling thread, for these chains of a table. It
// returns ErrNotInstalled if iptables is missing, and ErrLocked if another program has the tables.
func Open(family Family, table string, chains ...Chain) (*Table, error) {
	return open(family, directories(), table, chains...)
}

// open is Open with the directories of programs. It chooses the variant that has one of the chains: in the other they would be made
// twice, and never removed. Then comes the one that a kubelet uses, and then the system's. Most often no legacy table is there, and
// the system's variant is nft: then it starts no program.
func open(family Family, directories []string, table string, chains ...Chain) (*Table, error) {
	programs, err := find(family, directories)
	if err != nil {
		return nil, err
	}
	t := &Table{family: family, name: table, chains: chains, wait: patience, limit: limit}
	if t.registered, err = legacyTables(family); err != nil {
		return nil, err
	}
	candidates := []variant{nft}
	if len(t.registered) > 0 {
		candidates = append(candidates, legacy)
	}
	candidates = slices.DeleteFunc(candidates, func(v variant) bool { return programs.path[v] == "" })
	for _, hasTraces := range []func() (bool, error){t.hasChains, t.hasKubelet} {
		for _, v := range candidates {
			if t.variant, t.path = v, programs.path[v]; len(candidates) == 1 && v == programs.system {
				return t, nil
			}
			// A variant that cannot be asked is not the one in use.
			if found, err := hasTraces(); found || IsTransient(err) {
				return t, err
			}
		}
	}
	t.variant, t.path = programs.system, programs.path[programs.system]
	return t, nil
}

// legacyTables returns the names of the family's legacy tables. It reads a file, and changes nothing: to list a table that
// is not there would register it.
func legacyTables(family Family) ([]string, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + strings.TrimSuffix(family.program(), "tables") + "_tables_names")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // The kernel has no legacy tables, or has not loaded them.
	}
	return strings.Fields(string(names)), err
}

func (t *Table) hasChains() (bool, error) {
	l, err := t.listChains()
	return slices.ContainsFunc(t.chains, func(c Chain) bool { return l.has(c.Name) }), err
}

// hasKubelet says that a kubelet uses the variant: it makes one of these chains.
func (t *Table) hasKubelet() (bool, error) {
	l, err := t.list("mangle")
	return l.has("KUBE-IPTABLES-HINT") || l.has("KUBE-KUBELET-CANARY"), err
}

// Ensure makes the chains, their rules and the jumps to them, or takes them away. It changes nothing that is right, and can be called
// again after any failure. It returns ErrLocked if another program has the tables, and context.DeadlineExceeded if iptables does not
// end.
func (t *Table) Ensure() error {
	edits, err := t.plan()
	if err != nil || len(edits) == 0 {
		return err
	}
	script := "*" + t.name + "\n"
	for _, e := range edits {
		script += e.line + "\n"
	}
	_, err = t.run(script+"COMMIT\n", t.path+"-restore", "--noflush")
	return err
}

// Differs says what Ensure would change. It is empty if all is right. It changes nothing, and returns the errors of Ensure.
func (t *Table) Differs() ([]string, error) {
	edits, err := t.plan()
	return reasons(edits), err
}

func (t *Table) plan() (edits []edit, err error) {
	l, err := t.listChains()
	if err != nil {
		return nil, err
	}
	if c := t.chains[0]; len(t.chains) == 1 && l.has(c.Name) && len(c.Rules(l.rules[c.Name])) == 0 {
		if l, err = t.list(t.name); err != nil { // Every jump to the chain has to go.
			return nil, err
		}
	}
	for _, c := range t.chains {
		edits = append(edits, c.plan(l)...)
	}
	return edits, nil
}

// Rules returns the rules of a chain, and the policy of a built-in one, such as DROP. The policy is empty if the table is not there. It
// returns the errors of Ensure.
func (t *Table) Rules(chain string) (policy string, rules []string, err error) {
	l, err := t.list(t.name)
	return l.policies[chain], l.rules[chain], err
}

// Family is that of the table.
func (t *Table) Family() Family { return t.family }

// Program is the name of the program in use.
func (t *Table) Program() string { return t.family.program() + "-" + string(t.variant) }

// listChains lists what the chains need. A whole table is one run of iptables. But a single chain is a host's, next to those of
// kube-proxy: to list 20,000 rules takes iptables-nft 260 ms, and two chains take 4 ms. If the listing of one fails, it may not be
// there: the whole table tells, and no message needs to be understood.
func (t *Table) listChains() (listing, error) {
	if len(t.chains) != 1 {
		return t.list(t.name)
	}
	found := listing{rules: map[string][]string{}}
	for _, name := range []string{t.chains[0].Name, t.chains[0].From} {
		l, err := t.list(t.name, name)
		if IsTransient(err) {
			return l, err
		}
		if err != nil || !l.has(name) {
			return t.list(t.name)
		}
		found.rules[name] = l.rules[name]
	}
	return found, nil
}

// list lists a table, or a chain of it.
func (t *Table) list(table string, chain ...string) (listing, error) {
	if t.variant == legacy && !slices.Contains(t.registered, table) {
		return listing{}, nil // To list it would register it.
	}
	text, err := t.run("", t.path, append([]string{"-t", table, "-S"}, chain...)...)
	if err != nil {
		return listing{}, err
	}
	return parse(text), nil
}

// run runs a program of iptables, which waits for the lock.
func (t *Table) run(input, path string, args ...string) (string, error) {
	return output(t.limit, input, path, append(args, "--wait", strconv.Itoa(t.wait))...)
}

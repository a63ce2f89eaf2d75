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

// Tables are those of one family in one network namespace, and the chains that it should have.
type Tables struct {
	Family  Family
	chains  []Chain
	variant variant
	path    string
	// registered are the names of the family's legacy tables.
	registered []string
	// wait and limit are patience and limit but for tests.
	wait  int
	limit time.Duration
}

// Open finds the iptables of the family that is in use in the namespace of the calling thread, for these chains. It
// returns ErrNotInstalled if iptables is missing, and ErrLocked if another program has the tables.
func Open(family Family, chains ...Chain) (*Tables, error) {
	return open(family, directories(), chains...)
}

// open is Open with the directories of programs. It chooses the variant that has one of the chains: in the other they would be made
// twice, and never removed. Then comes the one that a kubelet uses, and then the system's. Most often no legacy table is there, and
// the system's variant is nft: then it starts no program.
func open(family Family, directories []string, chains ...Chain) (*Tables, error) {
	programs, err := find(family, directories)
	if err != nil {
		return nil, err
	}
	t := &Tables{Family: family, chains: chains, wait: patience, limit: limit}
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

func (t *Tables) hasChains() (found bool, err error) {
	err = t.byTable(func(_ string, chains []Chain, l listing) {
		found = found || slices.ContainsFunc(chains, func(c Chain) bool { return l.has(c.Name) })
	})
	return found, err
}

// hasKubelet says that a kubelet uses the variant: it makes one of these chains.
func (t *Tables) hasKubelet() (bool, error) {
	l, err := t.list("mangle")
	return l.has("KUBE-IPTABLES-HINT") || l.has("KUBE-KUBELET-CANARY"), err
}

// byTable calls f for each table with its chains, which stand together.
func (t *Tables) byTable(f func(table string, chains []Chain, l listing)) error {
	for rest := t.chains; len(rest) > 0; {
		table, count := rest[0].Table, 1
		for count < len(rest) && rest[count].Table == table {
			count++
		}
		l, err := t.listChains(table, rest[:count])
		if err != nil {
			return err
		}
		f(table, rest[:count], l)
		rest = rest[count:]
	}
	return nil
}

// Ensure makes the chains, their rules and the jumps to them, or takes them away. It changes nothing that is right, and can be called
// again after any failure. It returns ErrLocked if another program has the tables, and context.DeadlineExceeded if iptables does not
// end.
func (t *Tables) Ensure() error {
	_, script, err := t.plan()
	if err == nil && script != "" {
		_, err = t.run(script, t.path+"-restore", "--noflush")
	}
	return err
}

// Differs says what Ensure would change. It is empty if all is right. It changes nothing, and returns the errors of Ensure.
func (t *Tables) Differs() ([]string, error) {
	reasons, _, err := t.plan()
	return reasons, err
}

// plan returns what differs, each once, and what iptables-restore has to read. Both are empty if all is right.
func (t *Tables) plan() (reasons []string, script string, err error) {
	err = t.byTable(func(table string, chains []Chain, l listing) {
		lines := ""
		for _, c := range chains {
			for _, e := range c.plan(l) {
				lines += e.line + "\n"
				if !slices.Contains(reasons, e.reason) {
					reasons = append(reasons, e.reason)
				}
			}
		}
		if lines != "" {
			script += "*" + table + "\n" + lines + "COMMIT\n"
		}
	})
	return reasons, script, err
}

// Rules returns the rules of a chain, and the policy of a built-in one, such as DROP. The policy is empty if the table is not there. It
// returns the errors of Ensure.
func (t *Tables) Rules(table, chain string) (policy string, rules []string, err error) {
	l, err := t.list(table)
	return l.policies[chain], l.rules[chain], err
}

// Program is the name of the program in use.
func (t *Tables) Program() string { return t.Family.program() + "-" + string(t.variant) }

// listChains lists what the chains of the table need. A whole table is one run of iptables. But a single chain is a host's, next to those
// of kube-proxy: to list 20,000 rules takes iptables-nft 260 ms, and two chains take 4 ms. If the listing of one fails, it may not be
// there: the whole table tells, and no message needs to be understood. A chain that goes needs the whole table: every jump to it has to go.
func (t *Tables) listChains(table string, chains []Chain) (listing, error) {
	if len(chains) != 1 || len(chains[0].Rules) == 0 {
		return t.list(table)
	}
	found := listing{rules: map[string][]string{}}
	for _, name := range []string{chains[0].Name, chains[0].From} {
		l, err := t.list(table, name)
		if IsTransient(err) {
			return l, err
		}
		if err != nil || !l.has(name) {
			return t.list(table)
		}
		found.rules[name] = l.rules[name]
	}
	return found, nil
}

// list lists a table, or a chain of it.
func (t *Tables) list(table string, chain ...string) (listing, error) {
	if t.variant == legacy && !slices.Contains(t.registered, table) {
		return listing{}, nil // To list it would register it.
	}
	text, err := t.run("", t.path, append([]string{"-t", table, "-S"}, chain...)...)
	return parse(text), err
}

// run runs a program of iptables, which waits for the lock.
func (t *Tables) run(input, path string, args ...string) (string, error) {
	return output(t.limit, input, path, append(args, "--wait", strconv.Itoa(t.wait))...)
}

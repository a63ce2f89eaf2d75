package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
)

// ownNamespace is the network namespace of the calling thread.
const ownNamespace = "/proc/thread-self/ns/net"

// Tables are the tables of one family in one network namespace. One goroutine uses them at a time.
type Tables struct {
	editor    editor
	owned     string
	installed installed
	chosen    choice
	namespace os.FileInfo
}

// Open finds the iptables of the family that is in use in the namespace of the calling thread. The names of the
// caller's chains begin with the prefix owned: the tables touch no others. It returns ErrNotInstalled if iptables is
// missing, and ErrLocked if another program has the tables.
func Open(family Family, owned string) (*Tables, error) { return open(family, owned, directories()) }

// open is Open with the directories of programs.
func open(family Family, owned string, directories []string) (*Tables, error) {
	if owned == "" {
		return nil, errors.New("chains need a prefix")
	}
	namespace, err := os.Stat(ownNamespace)
	if err != nil {
		return nil, err
	}
	programs, err := find(family, directories)
	if err != nil {
		return nil, err
	}
	chosen, err := inUse(family, programs, owned)
	if err != nil {
		return nil, err
	}
	e := editor{family: family, path: programs.path[chosen.variant], wait: patience, limit: limit}
	return &Tables{editor: e, owned: owned, installed: programs, chosen: chosen, namespace: namespace}, nil
}

// Family is that of the tables.
func (t *Tables) Family() Family { return t.editor.family }

// Ensure makes the chains, their rules and the jumps to them. It changes nothing that is right. It can be called again after
// any failure. It returns ErrLocked if another program has the tables, and context.DeadlineExceeded if iptables
// does not end.
func (t *Tables) Ensure(chains ...Chain) error {
	tables, err := t.byTable(chains)
	if err != nil {
		return err
	}
	for _, chains := range tables {
		plan := func() ([]step, error) { return t.plan(chains) }
		if err := t.applyPlan(chains[0].Table, plan); err != nil {
			return err
		}
	}
	return nil
}

// Differs says what Ensure would change. It is empty if all is right. It changes nothing, and returns the errors of Ensure.
func (t *Tables) Differs(chains ...Chain) ([]string, error) {
	tables, err := t.byTable(chains)
	if err != nil {
		return nil, err
	}
	var differ []string
	for _, chains := range tables {
		steps, err := t.plan(chains)
		if err != nil {
			return nil, err
		}
		differ = append(differ, reasons(steps)...)
	}
	return differ, nil
}

// Remove deletes the chain, its rules and all jumps to it. It does nothing if the chain is not there. It returns the errors
// of Ensure.
func (t *Tables) Remove(table, name string) error {
	if err := validateName(table, name, t.owned); err != nil {
		return err
	}
	return t.applyPlan(table, func() ([]step, error) {
		l, err := t.list(table)
		return planRemove(l, name), err
	})
}

// Keep deletes the rules of a shared chain that keep does not want, and the chain with its last rule. It does nothing if the
// chain is not there. It returns the errors of Ensure.
func (t *Tables) Keep(table, name string, keep func(Rule) bool) error {
	if err := validateName(table, name, t.owned); err != nil {
		return err
	}
	return t.applyPlan(table, func() ([]step, error) {
		l, err := t.listChain(table, name)
		if err != nil || slices.ContainsFunc(l.rules[name], keep) {
			return planKeep(l, name, keep), err
		}
		if !l.has(name) {
			return nil, nil
		}
		l, err = t.list(table) // Every jump to the chain has to go.
		return planRemove(l, name), err
	})
}

// OtherVariants are the tables of the other variants of iptables that are installed. The variant in use can change, and then chains are left
// in another one.
func (t *Tables) OtherVariants() (variants []*Tables) {
	for v, path := range t.installed.path {
		if v != t.chosen.variant {
			tables := *t
			tables.chosen = choice{v, "it is installed"}
			tables.editor.path = path
			variants = append(variants, &tables)
		}
	}
	return variants
}

// Rules returns the rules of a chain. There are none if the chain is not there. It returns the errors of Ensure.
func (t *Tables) Rules(table, name string) ([]Rule, error) {
	l, err := t.listChain(table, name)
	return l.rules[name], err
}

// Policy returns the policy of a built-in chain, such as DROP, and its rules. The policy is empty if the table is not there. It returns
// the errors of Ensure.
func (t *Tables) Policy(table, name string) (policy string, rules []Rule, err error) {
	l, err := t.list(table)
	return l.policies[name], l.rules[name], err
}

// Program is the name of the program in use.
func (t *Tables) Program() string { return t.editor.family.program() + "-" + string(t.chosen.variant) }

// byTable returns the chains of each table, as all of these need one listing.
func (t *Tables) byTable(chains []Chain) ([][]Chain, error) {
	var tables [][]Chain
	number, listed := map[string]int{}, map[[2]string]bool{}
	for _, c := range chains {
		if err := c.validate(t.owned); err != nil {
			return nil, err
		}
		if listed[[2]string{c.Table, c.Name}] {
			return nil, fmt.Errorf("chain %s is given twice", c.Name)
		}
		listed[[2]string{c.Table, c.Name}] = true
		n, ok := number[c.Table]
		if !ok {
			n = len(tables)
			number[c.Table], tables = n, append(tables, nil)
		}
		tables[n] = append(tables[n], c)
	}
	return tables, nil
}

// plan returns the steps for chains of one table.
func (t *Tables) plan(chains []Chain) ([]step, error) {
	l, err := t.listFor(chains)
	if err != nil {
		return nil, err
	}
	var steps []step
	for i := range chains {
		steps = append(steps, plan(l, &chains[i])...)
	}
	return steps, nil
}

// applyPlan makes the steps of the plan, if there are any, and then plans again to see that nothing is left to do. It plans with the
// lock, because another process of relink can make the steps. While another process has the lock, it first looks whether there is
// something to wait for.
func (t *Tables) applyPlan(table string, plan func() ([]step, error)) error {
	lock, err := t.lock(0)
	if errors.Is(err, ErrLocked) {
		if steps, err := plan(); err != nil || len(steps) == 0 {
			return err
		}
		lock, err = t.lock(time.Duration(t.editor.wait) * time.Second)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	steps, err := plan()
	if err != nil || len(steps) == 0 {
		return err
	}
	failed := t.editor.apply(table, steps)
	if errors.Is(failed, ErrLocked) || errors.Is(failed, context.DeadlineExceeded) {
		return failed // What follows would wait as long again.
	}
	rest, err := plan()
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case len(rest) == 0:
		return nil // A step that failed: somebody else has deleted the rule, for example.
	case failed != nil:
		return failed
	}
	return fmt.Errorf("table %s: after the change, %s", table, strings.Join(reasons(rest), "; "))
}

// lock keeps other processes of relink away, until the file is closed. It locks the namespace itself: other namespaces have nothing
// to do with it, and the lock goes with the process.
func (t *Tables) lock(wait time.Duration) (*os.File, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := flock.Lock(ctx, f, flock.Exclusive); err != nil {
		if errors.Is(err, flock.ErrBusy) {
			return nil, fmt.Errorf("%w: the chains are %w", ErrLocked, err)
		}
		return nil, fmt.Errorf("lock the chains: %w", err)
	}
	return f, nil
}

// listFor lists what the chains need. A whole table is one run of iptables. But a shared chain is a host's, next
// to those of kube-proxy: to list 20,000 rules takes iptables-nft 260 ms, and two chains take 4 ms.
func (t *Tables) listFor(chains []Chain) (listing, error) {
	var names []string
	for _, c := range chains {
		if !c.Shared {
			return t.list(c.Table)
		}
		names = append(names, c.From, c.Name)
	}
	return t.listChain(chains[0].Table, names...)
}

// listChain lists chains by their names. If one fails, it may not be there. The listing of the whole table tells, and
// no message needs to be understood.
func (t *Tables) listChain(table string, names ...string) (listing, error) {
	whole := emptyListing()
	for _, name := range names {
		l, err := t.list(table, name)
		if errors.Is(err, ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
			return listing{}, err
		}
		if err != nil || !l.has(name) {
			return t.list(table)
		}
		whole.rules[name] = l.rules[name]
	}
	return whole, nil
}

// list lists a table, or a chain of it. The thread must be where it was: the same call in another namespace
// would change the tables of somebody else.
func (t *Tables) list(table string, chain ...string) (listing, error) {
	namespace, err := os.Stat(ownNamespace)
	if err != nil {
		return listing{}, err
	}
	if !os.SameFile(namespace, t.namespace) {
		return listing{}, errors.New("the thread is in another network namespace than when the tables were opened")
	}
	if t.chosen.variant == legacy {
		names, err := legacyTables(t.editor.family)
		if err != nil || !slices.Contains(names, table) {
			return emptyListing(), err // To list it would register it.
		}
	}
	args := append([]string{"-t", table, "-S"}, chain...)
	text, err := output(t.editor.limit, t.editor.path, append(args, "--wait", strconv.Itoa(t.editor.wait))...)
	if isWithoutNFT(err) {
		return emptyListing(), nil
	}
	if err != nil {
		return listing{}, err
	}
	return parse(text)
}

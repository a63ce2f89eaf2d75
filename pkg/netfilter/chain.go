package netfilter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Family is a family of addresses. Each has chains and programs of its own.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String is "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// program is the name of the family's program.
func (f Family) program() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// legacyNamesFile is the file with the names of the legacy tables in the namespace of the calling thread.
func (f Family) legacyNamesFile() string {
	if f == IPv6 {
		return "/proc/thread-self/net/ip6_tables_names"
	}
	return "/proc/thread-self/net/ip_tables_names"
}

// Rule is the arguments of a rule, in the form in which iptables -S prints them, without quotes and without -A CHAIN.
// Ensure fails if the form is another, because it could never tell the rule from a wrong one.
//
// The order is -s, -d, -i, -o, -p, then the matches with the comment at their end, then -j. Marks are like 0x100, and CONNMARK
// has --set-xmark instead of --set-mark. The mask of a single address can be left out.
type Rule []string

// Comment returns the rule's comment, or "".
func (r Rule) Comment() string { return r.after("--comment") }

// String is the rule as a line.
func (r Rule) String() string {
	words := slices.Clone(r)
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(words, " ")
}

// target is the chain that the rule jumps to, or another target, such as ACCEPT.
func (r Rule) target() string { return r.after("-j", "-g") }

// after returns the value of the first of the options. A comment can look like an option.
func (r Rule) after(options ...string) string {
	for i := 0; i+1 < len(r); i++ {
		if slices.Contains(options, r[i]) {
			return r[i+1]
		}
		if r[i] == "--comment" {
			i++
		}
	}
	return ""
}

// Key is the same for two rules that are the same: an address can be written in several ways.
func (r Rule) Key() string { return r.canonical().String() }

func (r Rule) equal(rule Rule) bool { return slices.Equal(r.canonical(), rule.canonical()) }

// canonical returns the rule with its addresses as iptables prints them.
func (r Rule) canonical() Rule {
	canonical := slices.Clone(r)
	for i := 0; i+1 < len(canonical); i++ {
		switch canonical[i] {
		case "--comment":
			i++
		case "-s", "-d", "--ctorigdst":
			canonical[i+1] = prefix(canonical[i+1])
		case "--to-source":
			if address, err := netip.ParseAddr(canonical[i+1]); err == nil {
				canonical[i+1] = address.String()
			}
		}
	}
	return canonical
}

// prefix returns an address or a prefix as iptables prints it. Other text stays as it is.
func prefix(text string) string {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().String()
	}
	return text
}

// Chain is a chain and the jump to it.
type Chain struct {
	// Table is mangle or nat, for example.
	Table string
	// Name begins with the prefix that Open was given.
	Name string
	// From is the built-in chain that jumps to it. The jump has the comment.
	From, JumpComment string
	// Rules are in the chain, in this order, and no others.
	Rules []Rule
	// Shared says that the chain has the rules of others, too: Rules are in it, in any order.
	Shared bool
}

// jump is the rule in From.
func (c *Chain) jump() Rule {
	return Rule{"-m", "comment", "--comment", c.JumpComment, "-j", c.Name}
}

// validate returns an error for what would touch the chains of others, or could not be found again.
func (c *Chain) validate(owned string) error {
	if err := validateName(c.Table, c.Name, owned); err != nil {
		return err
	}
	if c.From == "" || c.JumpComment == "" {
		return fmt.Errorf("chain %s: the jump needs the chain that it comes from, and a comment", c.Name)
	}
	for _, rule := range c.Rules {
		if rule.Comment() == "" {
			return fmt.Errorf("chain %s: rule %s needs a comment", c.Name, rule)
		}
	}
	return nil
}

func validateName(table, name, owned string) error {
	if table == "" {
		return errors.New("a chain needs a table")
	}
	if !strings.HasPrefix(name, owned) {
		return fmt.Errorf("chain %q: the name must begin with %s", name, owned)
	}
	return nil
}

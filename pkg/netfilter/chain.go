package netfilter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Chain is a chain of a table, and the jump to it. Its name is no one else's.
type Chain struct {
	Name string
	// From is the built-in chain that jumps to it. The jump has the comment, which has a blank.
	From, Comment string
	// Rules returns the rules that the chain should have, for those that it has. If there are none, the chain and all jumps to it go.
	//
	// A rule is as iptables -S prints it, without -A CHAIN: it could never be found again otherwise. The order is -s, -d, -i, -o,
	// -p, then the matches with the comment at their end, then -j. Marks are like 0x100, a comment has quotes, and
	// CONNMARK has --set-xmark instead of --set-mark.
	Rules func(current []string) []string
}

// Only is Rules for a chain that has these rules and no others, in this order.
func Only(rules ...string) func([]string) []string {
	return func([]string) []string { return rules }
}

// listing is what iptables -S prints.
type listing struct {
	// rules are those of each chain that is there.
	rules map[string][]string
	// policies are those of the built-in chains.
	policies map[string]string
}

// parse reads the output of iptables -S of a table or a chain. A comment can have a line break: what comes after it is left out.
func parse(text string) listing {
	l := listing{rules: map[string][]string{}, policies: map[string]string{}}
	for line := range strings.Lines(text) {
		option, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		chain, rest, _ := strings.Cut(rest, " ")
		switch option {
		case "-P":
			l.policies[chain] = rest
			l.rules[chain] = nil
		case "-N":
			l.rules[chain] = nil
		case "-A":
			l.rules[chain] = append(l.rules[chain], rest)
		}
	}
	return l
}

func (l listing) has(chain string) bool {
	_, exists := l.rules[chain]
	return exists
}

// edit is a line for iptables-restore, and what differs.
type edit struct{ line, reason string }

// plan returns what makes the chain as it should be. It keeps what is right.
func (c Chain) plan(l listing) (edits []edit) {
	current := l.rules[c.Name]
	rules := c.Rules(current)
	if len(rules) == 0 {
		return c.planRemove(l)
	}
	surplus, missing := without(current, rules), without(rules, current)
	reset := ""
	if !l.has(c.Name) {
		reset = fmt.Sprintf("chain %s is missing", c.Name)
	} else if !slices.Equal(slices.Concat(without(current, surplus), missing), rules) {
		reset = fmt.Sprintf("the rules of %s are out of order", c.Name)
	}
	if reset != "" {
		surplus, missing = nil, rules
		edits = append(edits, edit{":" + c.Name + " - [0:0]", reset}) // It empties a chain that is there.
	}
	for _, rule := range surplus {
		edits = append(edits, edit{"-D " + c.Name + " " + rule, fmt.Sprintf("rule is too much in %s: %s", c.Name, rule)})
	}
	for _, rule := range missing {
		edits = append(edits, edit{"-A " + c.Name + " " + rule, cmp.Or(reset, fmt.Sprintf("rule is missing in %s: %s", c.Name, rule))})
	}
	return append(edits, c.planJump(l.rules[c.From])...)
}

// planJump leaves one right jump. It deletes the others by what they are, not by their number: somebody else can add a rule to a
// built-in chain at any time.
func (c Chain) planJump(rules []string) (edits []edit) {
	jump := fmt.Sprintf("-m comment --comment %q -j %s", c.Comment, c.Name)
	kept := false
	for _, rule := range rules {
		if rule == jump && !kept {
			kept = true
		} else if c.isTarget(rule) {
			edits = append(edits, edit{"-D " + c.From + " " + rule, fmt.Sprintf("jump from %s to %s is too much: %s", c.From, c.Name, rule)})
		}
	}
	if !kept {
		edits = append(edits, edit{"-A " + c.From + " " + jump, fmt.Sprintf("jump from %s to %s is missing", c.From, c.Name)})
	}
	return edits
}

// isTarget says that the rule jumps to the chain. Nothing comes after the name of a chain.
func (c Chain) isTarget(rule string) bool {
	rule = " " + rule
	return strings.HasSuffix(rule, " -j "+c.Name) || strings.HasSuffix(rule, " -g "+c.Name)
}

// planRemove takes every jump to the chain away: the kernel deletes no chain that has one.
func (c Chain) planRemove(l listing) (edits []edit) {
	if !l.has(c.Name) {
		return nil
	}
	reason := fmt.Sprintf("chain %s is not needed any more", c.Name)
	for chain, rules := range l.rules {
		for _, rule := range rules {
			if c.isTarget(rule) {
				edits = append(edits, edit{"-D " + chain + " " + rule, reason})
			}
		}
	}
	return append(edits, edit{"-F " + c.Name, reason}, edit{"-X " + c.Name, reason})
}

// without returns the rules that are not among the others. There can be hundreds.
func without(rules, others []string) (rest []string) {
	found := map[string]bool{}
	for _, rule := range others {
		found[rule] = true
	}
	for _, rule := range rules {
		if !found[rule] {
			rest = append(rest, rule)
		}
	}
	return rest
}

// reasons returns those of the edits, each once.
func reasons(edits []edit) (texts []string) {
	for _, e := range edits {
		if !slices.Contains(texts, e.reason) {
			texts = append(texts, e.reason)
		}
	}
	return texts
}

package netfilter

import (
	"fmt"
	"slices"
	"strings"
)

// Chain is a chain of a table, and the jump to it. Nobody else has a chain of that name.
type Chain struct {
	Table, Name string
	// From is the built-in chain that jumps to it. The jump has the comment, which has a blank.
	From, Comment string
	// Rules are those of the chain, and no others, in this order. If there are none, the chain and all jumps to it go.
	//
	// A rule is as iptables -S prints it, without -A CHAIN: it could never be found again otherwise. The order is -s, -d, -i, -o,
	// -p, then the matches with the comment at their end, then -j. Marks are like 0x100, a comment has quotes, and
	// CONNMARK has --set-xmark instead of --set-mark.
	Rules []string
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
			l.policies[chain], l.rules[chain] = rest, nil
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

// plan returns what makes the chain and the jump to it as they should be.
func (c Chain) plan(l listing) (edits []edit) {
	reason := ""
	switch current := l.rules[c.Name]; {
	case len(c.Rules) == 0:
		return c.planRemove(l)
	case !l.has(c.Name):
		reason = fmt.Sprintf("chain %s is missing", c.Name)
	case !slices.Equal(current, c.Rules):
		reason = fmt.Sprintf("the rules of %s are not as they should be", c.Name)
	}
	if reason != "" {
		edits = append(edits, edit{":" + c.Name + " - [0:0]", reason}) // It empties a chain that is there.
		for _, rule := range c.Rules {
			edits = append(edits, edit{"-A " + c.Name + " " + rule, reason})
		}
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

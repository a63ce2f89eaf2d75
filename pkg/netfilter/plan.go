package netfilter

import (
	"fmt"
	"slices"
	"strconv"
)

// kind is what a step does.
type kind int

const (
	newChain kind = iota
	appendRule
	insertRule // at position
	deleteRule
	deleteAt // position
	flush
	deleteChain
)

// step is one call of iptables. Each step leaves a state from which the next plan goes on.
type step struct {
	kind     kind
	chain    string
	position int
	rule     Rule
	// reason says what differs.
	reason string
}

// plan returns the steps that make the chain as it should be. The jump to a new chain comes last: no packet sees
// half of it. A rule that is right stays.
func plan(l listing, c *Chain) []step {
	var steps []step
	missing := fmt.Sprintf("chain %s is missing", c.Name)
	if !l.has(c.Name) {
		steps = append(steps, step{kind: newChain, chain: c.Name, reason: missing})
	}
	if c.Shared {
		steps = append(steps, planShared(l.rules[c.Name], c)...)
	} else {
		steps = append(steps, planRules(l.rules[c.Name], c)...)
	}
	if !l.has(c.Name) {
		for i := range steps {
			steps[i].reason = missing // For each rule of it.
		}
	}
	return append(steps, planJump(l.rules[c.From], c)...)
}

// planShared appends what is missing. The order of the rules is nobody's.
func planShared(rules []Rule, c *Chain) []step {
	var steps []step
	present := map[string]bool{} // There can be hundreds.
	for _, rule := range rules {
		present[rule.Key()] = true
	}
	for _, rule := range c.Rules {
		if !present[rule.Key()] {
			steps = append(steps, step{kind: appendRule, chain: c.Name, rule: rule, reason: ruleIs("missing", rule, c.Name)})
			present[rule.Key()] = true
		}
	}
	return steps
}

// planRules leaves the rules at the beginning and at the end that are right. What comes instead of the others is there before
// they go.
func planRules(rules []Rule, c *Chain) []step {
	if surplus := len(rules) - len(c.Rules); surplus > maxEdits {
		return planRefill(surplus, c)
	}
	position, want := 1, c.Rules
	for len(rules) > 0 && len(want) > 0 && rules[0].equal(want[0]) {
		rules, want, position = rules[1:], want[1:], position+1
	}
	for len(rules) > 0 && len(want) > 0 && rules[len(rules)-1].equal(want[len(want)-1]) {
		rules, want = rules[:len(rules)-1], want[:len(want)-1]
	}
	var steps []step
	for _, rule := range want {
		steps = append(steps, step{kind: insertRule, chain: c.Name, position: position, rule: rule, reason: ruleIs("missing", rule, c.Name, rules...)})
		position++
	}
	for _, rule := range rules {
		steps = append(steps, step{kind: deleteAt, chain: c.Name, position: position, reason: ruleIs("too much", rule, c.Name, want...)})
	}
	return steps
}

// maxEdits is how many rules are taken away one by one. Each takes a process, and a pod can fill its own chains.
const maxEdits = 16

// planRefill empties the chain and fills it.
func planRefill(surplus int, c *Chain) []step {
	steps := []step{{kind: flush, chain: c.Name, reason: fmt.Sprintf("%d rules are too much in %s", surplus, c.Name)}}
	for _, rule := range c.Rules {
		steps = append(steps, step{kind: appendRule, chain: c.Name, rule: rule, reason: ruleIs("missing", rule, c.Name)})
	}
	return steps
}

// planJump leaves one right jump. It deletes the others by what they are, not by their number: somebody else can add
// a rule to a built-in chain at any time.
func planJump(rules []Rule, c *Chain) []step {
	var steps []step
	found := false
	for _, rule := range rules {
		if rule.target() != c.Name {
			continue
		}
		if !found && rule.equal(c.jump()) {
			found = true
			continue
		}
		if len(steps) == maxEdits {
			break // The next look says that there are more.
		}
		reason := fmt.Sprintf("jump from %s to %s is too much: %s", c.From, c.Name, rule)
		steps = append(steps, step{kind: deleteRule, chain: c.From, rule: rule, reason: reason})
	}
	if !found {
		reason := fmt.Sprintf("jump from %s to %s is missing", c.From, c.Name)
		steps = slices.Insert(steps, 0, step{kind: appendRule, chain: c.From, rule: c.jump(), reason: reason})
	}
	return steps
}

// planRemove takes every jump to the chain away: the kernel deletes no chain that has one.
func planRemove(l listing, name string) []step {
	if !l.has(name) {
		return nil
	}
	var steps []step
	reason := fmt.Sprintf("chain %s is there", name)
	for chain, rules := range l.rules {
		for _, rule := range rules {
			if rule.target() == name && chain != name {
				steps = append(steps, step{kind: deleteRule, chain: chain, rule: rule, reason: reason})
			}
		}
	}
	if len(l.rules[name]) > 0 {
		steps = append(steps, step{kind: flush, chain: name, reason: reason})
	}
	return append(steps, step{kind: deleteChain, chain: name, reason: reason})
}

// planKeep deletes the rules that are not wanted.
func planKeep(l listing, name string, keep func(Rule) bool) []step {
	var steps []step
	for _, rule := range l.rules[name] {
		if !keep(rule) {
			steps = append(steps, step{kind: deleteRule, chain: name, rule: rule, reason: ruleIs("too much", rule, name)})
		}
	}
	return steps
}

// reasons returns those of the steps, each once.
func reasons(steps []step) []string {
	var texts []string
	for _, s := range steps {
		if !slices.Contains(texts, s.reason) {
			texts = append(texts, s.reason)
		}
	}
	return texts
}

// ruleIs says what is wrong with a rule. The rule is out of place if the rules on the other side have it, too.
func ruleIs(wrong string, rule Rule, chain string, rules ...Rule) string {
	if slices.ContainsFunc(rules, rule.equal) {
		wrong = "out of place"
	}
	return fmt.Sprintf("rule is %s in %s: %s", wrong, chain, rule)
}

// arguments are those of iptables.
func (s step) arguments() []string {
	option := map[kind]string{newChain: "-N", appendRule: "-A", insertRule: "-I", deleteRule: "-D", deleteAt: "-D", flush: "-F", deleteChain: "-X"}
	args := []string{option[s.kind], s.chain}
	if s.position > 0 {
		args = append(args, strconv.Itoa(s.position))
	}
	return append(args, s.rule...)
}

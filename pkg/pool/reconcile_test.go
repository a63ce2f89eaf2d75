package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// localOf is a party that has confirmed what it has, has no lease, and does nothing unasked.
func localOf(me Party) Local {
	return Local{
		Me: me, Boot: "boot", Confirmed: true, MayLeave: true,
		Excluded: func(netip.Addr) bool { return false }, Waits: func(Want) bool { return true }, Expired: func(Want) bool { return false },
	}
}

// outcomeText is all that counts of an outcome, in few words: the grant, the block if it is written, and the rest.
func outcomeText(o Outcome) string {
	text := o.Grant.Addresses
	if o.Write {
		text += " -> " + blockText(o.Block)
	}
	if o.Delete {
		text += ", to delete"
	}
	for name, addresses := range map[string][]netip.Addr{"handed over": o.HandedOver, "kept": o.Kept, "fenced": o.Fenced} {
		for _, a := range addresses {
			text += fmt.Sprintf(", %s %s", name, a)
		}
	}
	for _, w := range o.Unmet {
		text += fmt.Sprintf(", unmet %s %d", w.Node, w.Count)
	}
	for _, w := range o.Disowned {
		text += ", disowned " + w.Node
	}
	if slices.ContainsFunc(o.Passed, func(n int) bool { return n > 0 }) {
		text += fmt.Sprintf(", passed %v", o.Passed)
	}
	return text
}

// use is what addresses are used for: "1 pod", "2 waits", "2 stays" (here), "2 claimed" (in the API), "3 other" (waits for another owner) or "0 quarantine".
func use(texts ...string) func(*Local) {
	uses := map[netip.Addr]Use{}
	for _, text := range texts {
		i, what, _ := strings.Cut(text, " ")
		uses[addr("10.3.0.1"+i)] = map[string]Use{
			"pod": {Held: true, Probed: true}, "new": {Held: true}, "owner": {Held: true, Claim: "claim", PodUIDs: []string{"source"}}, "waits": {Waiting: true, Claim: "claim"},
			"stays": {Waiting: true, Claim: "claim", Stays: true}, "claimed": {Waiting: true, Claim: "claim", Claimed: true},
			"other": {Waiting: true, Claim: "another claim"}, "quarantine": {},
		}[what]
	}
	return func(l *Local) { l.Uses = uses }
}

func spare(n int) func(*Local)   { return func(l *Local) { l.Spare = n } }
func surplus(n int) func(*Local) { return func(l *Local) { l.Surplus = n } }

func TestReconcile(t *testing.T) {
	migrates := oneOf("a", "10.3.0.10")
	migrates.PodUID, migrates.Sources = "target", []string{"earlier", "source"}
	accepted := blockOf("AA", "me").wanted(migrates)
	accepted.Status.Holders[0].Accepted = []string{"target"}
	claimed11 := func(l *Local) { l.Leaves, l.Claimed = true, []netip.Addr{addr("10.3.0.11")} }
	for name, test := range map[string]struct {
		grant string
		b     Block
		local []func(*Local)
		want  string
	}{
		"it has all that it knows of":                 {"++", blockOf("AA", "me"), nil, "++"},
		"it has got some":                             {"..", blockOf("A.", "me"), nil, "+."},
		"it has got some that need a probe":           {"..", blockOf("AA", "me").unproven(1), nil, "+?"},
		"pods have some that needed a probe":          {"??", blockOf("AA", "me").unproven(0, 1), []func(*Local){use("0 pod", "1 waits")}, "?? -> AA, A=me, unproven 1"},
		"a pod probes for one now":                    {"?", blockOf("A", "me").unproven(0), []func(*Local){use("0 new")}, "?"},
		"they needed one, and a holder is fenced":     {"?.", blockOf("AB", "me", "a!").unproven(0), []func(*Local){use("0 pod")}, "?."},
		"a new boot":                                  {"++", blockOf("AA", "me"), []func(*Local){func(l *Local) { l.Confirmed, l.Boot = false, "next" }}, "++ -> AA, A=me"},
		"this boot, noted by an earlier process":      {"++", blockOf("AA", "me"), []func(*Local){func(l *Local) { l.Confirmed = false }}, "++"},
		"a mark":                                      {"+-", blockOf("AA", "me"), nil, "+- -> A., A=me"},
		"a mark, for who wants it":                    {"+-", blockOf("AA", "me").wanted(anyOf("a", 1)), nil, "+- -> AB, A=me, B=a"},
		"a mark, for who wants more":                  {"+-", blockOf("AA", "me").wanted(anyOf("a", 2)), nil, "+- -> AB, A=me, B=a, a wants 1 any, unmet a 1"},
		"all":                                         {"--", blockOf("AA", "me"), nil, "-- -> .., to delete"},
		"all, but others have some":                   {"-.", blockOf("AB", "me", "a"), nil, "-. -> .B, B=a"},
		"all, but an owner's address waits there":     {"-.", blockOf("A=", "me"), nil, "-. -> .="},
		"all that can be given":                       {"-.", blockOf("A-", "me"), nil, "-. -> .-, to delete"},
		"nothing that can be given":                   {"..", blockOf("--", "me"), nil, ".. -> --, to delete"},
		"all, but a fenced node may come":             {"-.", blockOf("A.", "me", "a!"), nil, "-. -> .., B=a!"},
		"a mark that the API knows":                   {"-+", blockOf(".A", "me"), nil, ".+"},
		"a mark that another one has":                 {"-+", blockOf("BA", "me", "a"), nil, ".+"},
		"others ask, and it can spare":                {"+++", blockOf("AAA", "me").wanted(anyOf("a", 2)), []func(*Local){spare(3)}, "+-- -> ABB, A=me, B=a"},
		"others ask, and it can spare less":           {"+++", blockOf("AAA", "me").wanted(anyOf("a", 2)), []func(*Local){spare(1)}, "++- -> AAB, A=me, B=a, a wants 1 any, unmet a 1"},
		"others ask, and it can spare nothing":        {"++", blockOf("AA", "me").wanted(anyOf("a", 1)), nil, "++, unmet a 1"},
		"two ask":                                     {"+++", blockOf("AAA", "me").wanted(anyOf("a", 1), anyOf("b", 1)), []func(*Local){spare(3)}, "+-- -> ABC, A=me, B=a, C=b"},
		"others ask, and pods have all":               {"++", blockOf("AA", "me").wanted(anyOf("a", 1)), []func(*Local){spare(2), use("0 pod", "1 quarantine")}, "++, unmet a 1"},
		"others ask for what nobody gets any more":    {"++", blockOf("AA", "me").wanted(anyOf("a", 2)), []func(*Local){spare(2), func(l *Local) { l.Excluded = func(a netip.Addr) bool { return a == addr("10.3.0.11") } }}, "-+ -> BA, A=me, B=a, a wants 1 any, unmet a 1"},
		"a fenced one asks":                           {"+.", blockOf("AB", "me", "a!").wanted(anyOf("a", 1)), []func(*Local){spare(1)}, "+."},
		"one asks for too long":                       {"+-", blockOf("AA", "me").wanted(anyOf("a", 1)), []func(*Local){spare(1), func(l *Local) { l.Expired = func(Want) bool { return true } }}, "+- -> A., A=me, a wants 1 any"},
		"others ask elsewhere":                        {"+++", blockOf("AAA", "me"), []func(*Local){spare(3), func(l *Local) { l.Elsewhere = []Want{anyOf("a", 1), anyOf("b", 2)} }}, "--- -> BCC, B=a, C=b, passed [1 2]"},
		"others ask here and elsewhere":               {"++", blockOf("AA", "me").wanted(anyOf("a", 1)), []func(*Local){spare(1), func(l *Local) { l.Elsewhere = []Want{anyOf("b", 1)} }}, "+- -> AB, A=me, B=a"},
		"it has too much":                             {"+++", blockOf("AAA", "me"), []func(*Local){surplus(2), use("2 pod")}, "--+ -> ..A, A=me"},
		"it has too much, also what nobody gets":      {"++", blockOf("AA", "me"), []func(*Local){surplus(2), func(l *Local) { l.Excluded = func(netip.Addr) bool { return true } }}, "-- -> .., to delete"},
		"it asks, and goes on":                        {"..", blockOf("AA", "a").wanted(anyOf("me", 1)), nil, ".."},
		"it asks no more":                             {"..", blockOf("AA", "a").wanted(anyOf("me", 1)), []func(*Local){func(l *Local) { l.Waits = func(Want) bool { return false } }}, ".. -> AA, A=a"},
		"an owner is elsewhere, and nobody has it":    {"++", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.10")), nil, "-+ -> BA, A=me, B=a"},
		"an owner is elsewhere, and it waits for it":  {"++", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.10")), []func(*Local){use("0 waits")}, "-+ -> BA, A=me, B=a, handed over 10.3.0.10"},
		"an owner is elsewhere, and its pod has it":   {"++", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.10")), []func(*Local){use("0 owner")}, "++, unmet a 0"},
		"an owner is elsewhere, and it is another's":  {"++", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.10")), []func(*Local){use("0 other")}, "++, disowned a"},
		"an owner is elsewhere, and it is given back": {"-+", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.10")), nil, "-+ -> BA, A=me, B=a"},
		"a machine migrates":                          {"++", blockOf("AA", "me").wanted(migrates), []func(*Local){use("0 owner")}, "++ -> AA, A=me, a wants 0 for claim, kept 10.3.0.10, unmet a 0"},
		"a machine migrates, as is accepted":          {"++", accepted, []func(*Local){use("0 owner")}, "++, unmet a 0"},
		"a machine does not migrate":                  {"++", func() Block { b := accepted.clone(); b.Status.Want = nil; return b }(), []func(*Local){use("0 owner")}, "++ -> AA, A=me"},
		"a machine has migrated":                      {"++", accepted, []func(*Local){use("0 waits")}, "-+ -> BA, A=me, B=a, handed over 10.3.0.10"},
		"it leaves":                                   {"++++", blockOf("AAAA", "me"), []func(*Local){surplus(4), claimed11, use("0 pod", "1 waits", "2 quarantine")}, "+-+- -> A=A., A=me, handed over 10.3.0.11"},
		"it leaves, and an owner has no claim":        {"++", blockOf("AA", "me"), []func(*Local){surplus(2), claimed11, use("0 waits", "1 pod")}, "-+ -> .A, A=me, handed over 10.3.0.10"},
		"it leaves, and somebody deleted a claim":     {"++", blockOf("AA", "me"), []func(*Local){surplus(2), claimed11, use("0 claimed", "1 claimed")}, "+- -> A=, A=me, handed over 10.3.0.11"},
		"it leaves, and they stay here":               {"++", blockOf("AA", "me"), []func(*Local){surplus(2), claimed11, use("0 stays", "1 stays")}, "++"},
		"it leaves, with an owner's mark":             {"+-", blockOf("AA", "me"), []func(*Local){claimed11}, "+- -> A=, A=me"},
		"it leaves, and others ask":                   {"++", blockOf("AA", "me").wanted(anyOf("a", 2)), []func(*Local){surplus(2), spare(1), claimed11, use("1 waits")}, "-- -> B=, B=a, a wants 1 any, handed over 10.3.0.11, unmet a 1"},
		"it leaves, and the owner is elsewhere":       {"++", blockOf("AA", "me").wanted(oneOf("a", "10.3.0.11")), []func(*Local){claimed11, use("0 pod", "1 waits")}, "+- -> AB, A=me, B=a, handed over 10.3.0.11"},
		"it is fenced, and pods have some":            {"++", blockOf("AB", "me!", "a"), []func(*Local){use("0 pod", "1 pod")}, ".., fenced 10.3.0.10, fenced 10.3.0.11"},
		"it is fenced, and no pod has any":            {"++", blockOf("AA", "me!"), nil, ".. -> .., to delete"},
		"it is fenced, and owners have claims":        {"++", blockOf("AA", "me!"), []func(*Local){claimed11}, ".. -> .="},
		"it is fenced, and may not leave":             {"++", blockOf("AA", "me!"), []func(*Local){func(l *Local) { l.MayLeave = false }}, ".."},
		"it is fenced, with a mark":                   {"-+", blockOf("AB", "me!", "a"), nil, ".. -> .B, B=a"},
	} {
		l := localOf(partyOf("me"))
		for _, change := range test.local {
			change(&l)
		}
		g, before := grantOfBlock(test.grant), test.b.clone()
		if g.Empty() {
			g = Grant{Pool: "p"}
		}
		o, err := Reconcile(test.b, g, l)
		if err != nil || outcomeText(o) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, outcomeText(o), err, test.want)
		}
		if o.Write {
			checkUnchanged(t, name, before, test.b, o.Block)
		}
	}
}

// What the API has lost stops Reconcile before it does anything.
func TestReconcileWithALoss(t *testing.T) {
	for name, test := range map[string]struct {
		grant string
		b     Block
		want  error
		text  string
	}{
		"others have what it has": {"++", blockOf("AB", "me", "a"), ErrStale, "AddressBlock p-0: the API has an older state than this node: this node has 1 addresses that are not its own there"},
		"nobody has what it has":  {"+", blockOf("."), ErrStale, "AddressBlock p-0: the API has an older state than this node: this node has 1 addresses that are not its own there"},
		"another block of the name": {"+", func() Block { b := blockOf("A", "me"); b.Metadata.UID = "uid-2"; return b }(), ErrReplaced,
			"AddressBlock p-0: the API has another block of this name: its UID is uid-2, and was uid-1"},
	} {
		_, err := Reconcile(test.b, grantOfBlock(test.grant), localOf(partyOf("me")))
		if !errors.Is(err, test.want) || err.Error() != test.text {
			t.Errorf("%s: %v, want %s", name, err, test.text)
		}
	}
}

package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// legacyTables returns the names of the family's legacy tables. It reads a file, and changes nothing: to list a table that
// is not there would register it.
func legacyTables(family Family) ([]string, error) {
	names, err := os.ReadFile(family.legacyNamesFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // The kernel has no legacy tables, or has not loaded them.
	}
	return strings.Fields(string(names)), err
}

// inUse finds out which variant is in use. Most often no legacy table is there, and the system's variant is nft: then it
// starts no program. It returns ErrNotInstalled if the variant in use is not installed.
func inUse(family Family, programs installed, owned string) (choice, error) {
	names, err := legacyTables(family)
	switch {
	case err != nil:
		return choice{}, err
	case programs.path[nft] == "":
		return choice{legacy, "iptables-nft is not installed"}, nil
	case len(names) == 0 && programs.system == nft:
		return choice{nft, "no legacy table is there, and it is the system's"}, nil
	}
	if chosen, err := kubeletVariant(programs, names); err != nil || chosen.variant != "" {
		return chosen, err
	}
	inNFT, err := allTraces(programs.path[nft], owned)
	if err != nil {
		return choice{}, err
	}
	var inLegacy traces
	switch {
	case len(names) == 0:
	case programs.path[legacy] != "":
		if inLegacy, err = allTraces(programs.path[legacy], owned); err != nil {
			return choice{}, err
		}
	case inNFT.count == 0:
		return choice{}, fmt.Errorf("%s-legacy is %w, but its tables are in use (%s): install it", family.program(), ErrNotInstalled, strings.Join(names, ", "))
	}
	return choose(inNFT, inLegacy, programs.system), nil
}

// kubeletVariant returns the variant that a kubelet uses, if both can be in use. A kubelet shows in one table. To list all
// rules of a node takes a second, if there are many.
func kubeletVariant(programs installed, names []string) (choice, error) {
	if len(names) == 0 {
		return choice{}, nil
	}
	variants := []variant{nft}
	if programs.path[legacy] != "" && slices.Contains(names, "mangle") {
		variants = append(variants, legacy)
	}
	for _, v := range variants {
		found, err := tracesIn(programs.path[v], "", "-t", "mangle", "-S", "--wait", lockWait)
		if err != nil {
			return choice{}, err
		}
		if found.hint {
			return choice{v, "a kubelet uses it"}, nil
		}
	}
	return choice{}, nil
}

// isWithoutNFT says that the kernel has no nftables.
func isWithoutNFT(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Failed to initialize nft: Protocol not supported")
}

// allTraces returns the traces in all tables that are there. It adds none.
func allTraces(path, owned string) (traces, error) { return tracesIn(path+"-save", owned) }

// tracesIn returns the traces in what the program prints. It takes what is printed before a rule that the program cannot read:
// somebody has put it into a table of iptables with nft. For a kernel without nftables there are none.
func tracesIn(path, owned string, args ...string) (traces, error) {
	text, err := output(limit, path, args...)
	if isWithoutNFT(err) {
		return traces{}, nil
	}
	if err != nil && text == "" {
		return traces{}, err
	}
	l, err := parse(text)
	return tracesOf(l, owned), err
}

// variant is one of the two kinds of iptables. The kernel keeps their tables apart, and works with both at once.
type variant string

const (
	nft    variant = "nft"
	legacy variant = "legacy"
)

// hints are chains that a kubelet makes in table mangle, with the variant that it uses.
var hints = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}

// traces are what shows that a variant is in use.
type traces struct {
	// hint says that a kubelet uses it.
	hint bool
	// owned says that chains of the caller are there.
	owned bool
	// count is that of rules, of chains that somebody made, and of policies that somebody changed. A table that is only
	// registered counts nothing: to list a legacy table registers it.
	count int
}

// tracesOf returns the traces in a listing. A chain of the caller has the prefix, if there is one.
func tracesOf(l listing, owned string) traces {
	var t traces
	for name, rules := range l.rules {
		t.count += len(rules)
		if l.policies[name] != "ACCEPT" { // A chain that somebody made has none.
			t.count++
		}
		t.hint = t.hint || slices.Contains(hints, name)
		t.owned = t.owned || owned != "" && strings.HasPrefix(name, owned)
	}
	return t
}

// choice is a variant and why.
type choice struct {
	variant variant
	reason  string
}

// choose returns the variant in use. A kubelet's comes first, as in Kubernetes' iptables-wrappers. Then comes the one
// with the caller's chains: in the other they would be made twice, and never removed. If nothing is in use, it is
// the system's.
func choose(inNFT, inLegacy traces, system variant) choice {
	counts := fmt.Sprintf("rules and chains: %d in nft, %d in legacy", inNFT.count, inLegacy.count)
	switch {
	case inNFT.hint:
		return choice{nft, "a kubelet uses it"}
	case inLegacy.hint:
		return choice{legacy, "a kubelet uses it"}
	case inNFT.owned:
		return choice{nft, "it has chains of the caller"}
	case inLegacy.owned:
		return choice{legacy, "it has chains of the caller"}
	case inLegacy.count > inNFT.count:
		return choice{legacy, counts}
	case inNFT.count > 0:
		return choice{nft, counts}
	}
	return choice{system, "nothing is in use, and it is the system's"}
}

package netfilter

import (
	"fmt"
	"slices"
	"strings"
)

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

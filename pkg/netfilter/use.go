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

package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// registered returns the names of the family's legacy tables. It reads a file, and changes nothing: to list a table that
// is not there would register it.
func registered(family Family) ([]string, error) {
	names, err := os.ReadFile(family.registered())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // The kernel has no legacy tables, or has not loaded them.
	}
	return strings.Fields(string(names)), err
}

// inUse finds out which variant is in use. Most often no legacy table is there, and the system's variant is nft: then it
// starts no program. It returns ErrNotInstalled if the variant in use is not installed.
func inUse(family Family, in installed, owned string) (choice, error) {
	names, err := registered(family)
	switch {
	case err != nil:
		return choice{}, err
	case in.path[nft] == "":
		return choice{legacy, "iptables-nft is not installed"}, nil
	case len(names) == 0 && in.system == nft:
		return choice{nft, "no legacy table is there, and it is the system's"}, nil
	}
	if chosen, err := kubelets(in, names); err != nil || chosen.variant != "" {
		return chosen, err
	}
	inNFT, err := all(in.path[nft], owned)
	if err != nil {
		return choice{}, err
	}
	var inLegacy traces
	switch {
	case len(names) == 0:
	case in.path[legacy] != "":
		if inLegacy, err = all(in.path[legacy], owned); err != nil {
			return choice{}, err
		}
	case inNFT.count == 0:
		return choice{}, fmt.Errorf("%s-legacy is %w, but its tables are in use (%s): install it", family.program(), ErrNotInstalled, strings.Join(names, ", "))
	}
	return choose(inNFT, inLegacy, in.system), nil
}

// kubelets returns the variant that a kubelet uses, if both can be in use. A kubelet shows in one table. To list all
// rules of a node takes a second, if there are many.
func kubelets(in installed, names []string) (choice, error) {
	if len(names) == 0 {
		return choice{}, nil
	}
	programs := []variant{nft}
	if in.path[legacy] != "" && slices.Contains(names, "mangle") {
		programs = append(programs, legacy)
	}
	for _, v := range programs {
		found, err := tracesIn(in.path[v], "", "-t", "mangle", "-S", "--wait", lockWait)
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

// all returns the traces in all tables that are there. It adds none.
func all(path, owned string) (traces, error) { return tracesIn(path+"-save", owned) }

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
	return traced(l, owned), err
}

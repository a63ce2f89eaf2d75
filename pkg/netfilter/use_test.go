package netfilter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// programs makes a directory in which some programs of iptables are, each as a link to its variant.
func programs(t *testing.T, links map[string]variant) []string {
	t.Helper()
	dir := t.TempDir()
	for name, v := range links {
		file, err := filepath.EvalSymlinks("/usr/sbin/iptables-" + string(v))
		if err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-save"} {
			if err := os.Symlink(file, filepath.Join(dir, name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return []string{"", "relative", dir}
}

// These are the programs of a machine whose own variant is nft or legacy, or that has only one.
func installations(name string) map[string]map[string]variant {
	both := func(system variant) map[string]variant {
		return map[string]variant{name: system, name + "-nft": nft, name + "-legacy": legacy}
	}
	return map[string]map[string]variant{
		"nft": both(nft), "legacy": both(legacy), "no system": {name + "-nft": nft, name + "-legacy": legacy},
		"only nft": {name: nft, name + "-nft": nft}, "only legacy": {name: legacy}, "none": {},
	}
}

func TestOpen(t *testing.T) {
	const legacyRule, nftRule = "IPT-legacy -t filter -A INPUT -i eth9 -j DROP", "IPT-nft -t filter -A INPUT -i eth9 -j DROP"
	const manyLegacy, manyNFT = legacyRule + ";" + legacyRule, nftRule + ";" + nftRule
	const missing = "-legacy is not installed, but its tables are in use (filter): install it"
	tests := []struct {
		name, machine, before string
		want                  string // of String, or of the error
	}{
		{"nothing", "nft", "true", "-nft: no legacy table is there, and it is the system's"},
		{"nothing", "legacy", "true", "-legacy: nothing is in use, and it is the system's"},
		{"nothing", "no system", "true", "-nft: no legacy table is there, and it is the system's"},
		{"nothing", "only nft", "true", "-nft: no legacy table is there, and it is the system's"},
		{"nothing", "only legacy", "true", "-legacy: iptables-nft is not installed"},
		{"nothing", "none", "true", " is not installed: install the package iptables (looked in PATH, /usr/local/sbin, /usr/sbin, /sbin)"},
		{"a legacy rule", "nft", legacyRule, "-legacy: rules and chains: 0 in nft, 1 in legacy"},
		{"a legacy rule", "only nft", legacyRule, missing},
		{"a legacy policy", "nft", "IPT-legacy -t filter -P FORWARD DROP", "-legacy: rules and chains: 0 in nft, 1 in legacy"},
		{"an nft rule", "legacy", nftRule, "-nft: rules and chains: 1 in nft, 0 in legacy"},
		{"legacy tables that are empty", "nft", "IPT-legacy -t filter -S; IPT-legacy -t nat -S", "-nft: nothing is in use, and it is the system's"},
		{"legacy tables that are empty", "legacy", "IPT-legacy -t filter -S; IPT-legacy -t nat -S", "-legacy: nothing is in use, and it is the system's"},
		{"nft tables that are empty", "legacy", nftRule + "; IPT-nft -F", "-legacy: nothing is in use, and it is the system's"},
		{"more legacy", "nft", manyLegacy + ";" + nftRule, "-legacy: rules and chains: 1 in nft, 2 in legacy"},
		{"as many", "legacy", legacyRule + ";" + nftRule, "-nft: rules and chains: 1 in nft, 1 in legacy"},
		{"nft beside legacy tables", "only nft", legacyRule + ";" + nftRule, "-nft: rules and chains: 1 in nft, 0 in legacy"},
		{"a kubelet in nft", "legacy", manyLegacy + "; IPT-nft -t mangle -N KUBE-IPTABLES-HINT", "-nft: a kubelet uses it"},
		{"a kubelet in legacy", "nft", manyNFT + "; IPT-legacy -t mangle -N KUBE-KUBELET-CANARY", "-legacy: a kubelet uses it"},
		{"kubelets in both", "legacy", "IPT-legacy -t mangle -N KUBE-KUBELET-CANARY; IPT-nft -t mangle -N KUBE-IPTABLES-HINT", "-nft: a kubelet uses it"},
		{"own chains in nft", "legacy", manyLegacy + "; IPT-nft -t nat -N RELINK-X", "-nft: it has chains of the caller"},
		{"own chains in legacy", "nft", manyNFT + "; IPT-legacy -t nat -N RELINK-X", "-legacy: it has chains of the caller"},
		{"own chains beside a kubelet", "nft", "IPT-nft -t nat -N RELINK-X; IPT-legacy -t mangle -N KUBE-KUBELET-CANARY", "-legacy: a kubelet uses it"},
		{"rules that only nft can read", "legacy", nftRule + "; nft add rule NFT filter INPUT meta random '<' 5 accept", "-nft: rules and chains: 1 in nft, 0 in legacy"},
	}
	for _, family := range []Family{IPv4, IPv6} {
		for _, test := range tests {
			t.Run(family.String()+" "+test.name+" "+test.machine, func(t *testing.T) {
				t.Parallel()
				path := sandbox(t)
				table := map[Family]string{IPv4: "ip", IPv6: "ip6"}[family]
				fresh.Run(t, path, strings.NewReplacer("IPT-", family.program()+"-", "NFT", table).Replace(test.before))
				names := func() string { return fresh.Run(t, path, "cat "+family.legacyNamesFile()+"; nft list tables") }
				before := names()
				p := backend{path: path}
				p.in(t, func() error {
					tables, err := open(family, "RELINK-", programs(t, installations(family.program())[test.machine]))
					if err != nil {
						if err.Error() != family.program()+test.want || !errors.Is(err, ErrNotInstalled) {
							t.Errorf("%v, want %s", err, test.want)
						}
						return nil
					}
					if got := tables.Program() + ": " + tables.chosen.reason; got != family.program()+test.want {
						t.Errorf("%s, want %s", got, test.want)
					}
					return errors.Join(tables.Ensure(saveChain()), checkNoDifference(tables, saveChain()), tables.Remove("mangle", "RELINK-SAVE"))
				})
				if after := names(); test.want == "-nft: no legacy table is there, and it is the system's" && strings.Contains(after, "nat") {
					t.Errorf("tables were %s and are %s", before, after)
				}
			})
		}
	}
}

// To look adds no table, of either variant.
func TestLookingChangesNothing(t *testing.T) {
	for _, machine := range []string{"nft", "legacy"} {
		for _, before := range []string{"true", "iptables-legacy -t nat -S", "iptables-nft -t nat -N OTHER; iptables-legacy -t filter -N OTHER"} {
			path := sandbox(t)
			fresh.Run(t, path, before)
			const list = "cat /proc/thread-self/net/ip_tables_names; nft list ruleset"
			tables := fresh.Run(t, path, list)
			backend{path: path}.in(t, func() error {
				tables, err := open(IPv4, "RELINK-", programs(t, installations("iptables")[machine]))
				if err != nil {
					return err
				}
				_, differs := tables.Differs(saveChain())
				_, rules := tables.Rules("raw", "RELINK-X")
				err = errors.Join(differs, rules)
				for _, t := range append(tables.OtherVariants(), tables) {
					err = errors.Join(err, t.Remove("mangle", "RELINK-X"), t.Keep("raw", "RELINK-X", func(Rule) bool { return false }))
				}
				return err
			})
			if after := fresh.Run(t, path, list); after != tables {
				t.Errorf("%s on %s: %s, was %s", before, machine, after, tables)
			}
		}
	}
}

// This machine's own programs are found without PATH.
func TestOpenWithoutPATH(t *testing.T) {
	t.Setenv("PATH", "")
	for _, family := range []Family{IPv4, IPv6} {
		tables, err := Open(family, "RELINK-")
		if err != nil {
			t.Error(err)
			continue
		}
		if err := errors.Join(tables.Ensure(saveChain()), checkNoDifference(tables, saveChain()), tables.Remove("mangle", "RELINK-SAVE")); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(IPv4, ""); err == nil {
		t.Error("no prefix: no error")
	}
}

// A user without privileges gets an error, and not the answer that nothing is there.
func TestOpenAsNobody(t *testing.T) {
	fresh.AsNobody(t, func() {
		tables, err := Open(IPv4, "RELINK-")
		if err == nil {
			_, err = tables.Rules("nat", "RELINK-X")
		}
		if err == nil || !strings.Contains(err.Error(), "Permission denied") || errors.Is(err, ErrLocked) {
			t.Errorf("%v", err)
		}
	})
}

// A name that does not tell its variant is asked for its version.
func TestVariantOf(t *testing.T) {
	for version, want := range map[string]variant{
		"iptables v1.8.9 (nf_tables)": nft, "iptables v1.8.9 (legacy)": legacy, "iptables v1.6.1": legacy,
	} {
		path := filepath.Join(t.TempDir(), "iptables")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got, err := variantOf(path); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", version, got, err, want)
		}
	}
}

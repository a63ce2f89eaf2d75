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
		for _, suffix := range []string{"", "-restore"} {
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
	tests := []struct {
		name, machine, before string
		want                  string // the variant, or the error
	}{
		{"nothing", "nft", "true", "-nft"},
		{"nothing", "legacy", "true", "-legacy"},
		{"nothing", "no system", "true", "-nft"},
		{"nothing", "only nft", "true", "-nft"},
		{"nothing", "only legacy", "true", "-legacy"},
		{"nothing", "none", "true", " is not installed: install the package iptables (looked in PATH, /usr/local/sbin, /usr/sbin, /sbin)"},
		{"rules of others", "nft", "IPT-legacy -t filter -A INPUT -i eth9 -j DROP", "-nft"},
		{"rules of others", "legacy", "IPT-nft -t filter -A INPUT -i eth9 -j DROP", "-legacy"},
		{"rules of others", "only nft", "IPT-legacy -t filter -A INPUT -i eth9 -j DROP", "-nft"},
		{"a kubelet in nft", "legacy", "IPT-legacy -t filter -N OTHER; IPT-nft -t mangle -N KUBE-IPTABLES-HINT", "-nft"},
		{"a kubelet in legacy", "nft", "IPT-legacy -t mangle -N KUBE-KUBELET-CANARY", "-legacy"},
		{"kubelets in both", "legacy", "IPT-legacy -t mangle -N KUBE-KUBELET-CANARY; IPT-nft -t mangle -N KUBE-IPTABLES-HINT", "-nft"},
		{"own chains in nft", "legacy", "IPT-nft -t mangle -N RELINK-SAVE", "-nft"},
		{"own chains in legacy", "nft", "IPT-legacy -t mangle -N RELINK-SAVE", "-legacy"},
		{"own chains beside a kubelet", "nft", "IPT-nft -t mangle -N RELINK-SAVE; IPT-legacy -t mangle -N KUBE-KUBELET-CANARY", "-nft"},
	}
	for _, family := range []Family{IPv4, IPv6} {
		for _, test := range tests {
			t.Run(family.String()+" "+test.name+" "+test.machine, func(t *testing.T) {
				t.Parallel()
				path := sandbox(t)
				fresh.Run(t, path, strings.ReplaceAll(test.before, "IPT-", family.program()+"-"))
				p := backend{path: path}
				p.in(t, func() error {
					table, err := open(family, programs(t, installations(family.program())[test.machine]), saveChain())
					if err != nil {
						if err.Error() != family.program()+test.want || !errors.Is(err, ErrNotInstalled) {
							t.Errorf("%v, want %s", err, test.want)
						}
						return nil
					}
					if got := table.Program(); got != family.program()+test.want {
						t.Errorf("%s, want %s", got, test.want)
					}
					return errors.Join(table.Ensure())
				})
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
				for _, chain := range []Chain{saveChain(), removed(saveChain())[0]} {
					table, err := open(IPv4, programs(t, installations("iptables")[machine]), chain)
					if err != nil {
						return err
					}
					if _, err = table.Differs(); err != nil {
						return err
					}
				}
				raw := Chain{Table: "raw", Name: "RELINK-RAW", From: "OUTPUT"}
				table, err := open(IPv4, programs(t, installations("iptables")[machine]), raw)
				if err != nil {
					return err
				}
				return table.Ensure()
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
		if _, err := Open(family, saveChain()); err != nil {
			t.Error(err)
		}
	}
}

// A user without privileges gets an error, and not the answer that nothing is there.
func TestOpenAsNobody(t *testing.T) {
	fresh.AsNobody(t, func() {
		table, err := Open(IPv4, saveChain())
		if err == nil {
			_, err = table.Differs()
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

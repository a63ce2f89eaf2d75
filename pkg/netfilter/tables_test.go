package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
)

// What is right is not touched: the packets that a rule has counted are there still.
func TestEnsureTwice(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		chains := []Chain{saveChain(), restoreChain()}
		p.with(t, func(table *Tables) error {
			differ, err := table.Differs()
			want := []string{
				"chain RELINK-SAVE is missing", "jump from PREROUTING to RELINK-SAVE is missing", "chain RELINK-PUT is missing",
				"jump from OUTPUT to RELINK-PUT is missing",
			}
			if !slices.Equal(differ, want) {
				t.Errorf("differs %q", differ)
			}
			return err
		}, chains...)
		p.ensure(t, chains...)
		p.ensure(t, p.masquerade(2))
		p.run(t, "IPT -t mangle -Z; IPT -t mangle -I RELINK-SAVE -c 7 9 -i eth9 -j RETURN; IPT -t mangle -D RELINK-SAVE 1")
		before := p.run(t, "IPT -t mangle -S -v; IPT -t nat -S -v")
		p.ensure(t, chains...)
		p.ensure(t, p.masquerade(2))
		if after := p.run(t, "IPT -t mangle -S -v; IPT -t nat -S -v"); after != before {
			t.Errorf("changed:\n%s\nto\n%s", before, after)
		}
	})
}

func TestEnsureRepairs(t *testing.T) {
	tests := []struct {
		name, damage string
		want         []string
	}{
		{"a rule too much", "IPT -t mangle -I RELINK-SAVE 2 -j ACCEPT", []string{"the rules of RELINK-SAVE are not as they should be"}},
		{"a rule twice", "IPT -t mangle -A RELINK-SAVE -i eth2 -m comment --comment third -j RETURN", []string{"the rules of RELINK-SAVE are not as they should be"}},
		{"a rule missing at the end", "IPT -t mangle -D RELINK-SAVE 3", []string{"the rules of RELINK-SAVE are not as they should be"}},
		{"a rule missing in between", "IPT -t mangle -D RELINK-SAVE 2", []string{"the rules of RELINK-SAVE are not as they should be"}},
		{"the wrong order", "IPT -t mangle -D RELINK-SAVE 3; IPT -t mangle -I RELINK-SAVE -i eth2 -m comment --comment third -j RETURN",
			[]string{"the rules of RELINK-SAVE are not as they should be"}},
		{"all gone", "IPT -t mangle -F RELINK-SAVE; IPT -t mangle -D PREROUTING 2", []string{
			"the rules of RELINK-SAVE are not as they should be", "jump from PREROUTING to RELINK-SAVE is missing",
		}},
		{"the jump twice", "IPT -t mangle -I PREROUTING -m comment --comment 'relink: to the chain' -j RELINK-SAVE",
			[]string{`jump from PREROUTING to RELINK-SAVE is too much: -m comment --comment "relink: to the chain" -j RELINK-SAVE`}},
		{"a wrong jump twice", "IPT -t mangle -I PREROUTING -j RELINK-SAVE; IPT -t mangle -A PREROUTING -i eth9 -g RELINK-SAVE",
			[]string{"jump from PREROUTING to RELINK-SAVE is too much: -j RELINK-SAVE", "jump from PREROUTING to RELINK-SAVE is too much: -i eth9 -g RELINK-SAVE"}},
	}
	eachBackend(t, func(t *testing.T, p backend) {
		p.run(t, "IPT -t mangle -A PREROUTING -m comment --comment 'not -j RELINK-SAVE' -j ACCEPT; IPT -t mangle -N OTHER; IPT -t mangle -A OTHER -m comment --comment 'two\nlines' -j RETURN; IPT -t mangle -A OUTPUT -j OTHER")
		p.ensure(t, saveChain())
		p.run(t, "IPT -t mangle -A PREROUTING -j OTHER")
		others := foreign(p.run(t, "IPT -t mangle -S"))
		for _, test := range tests {
			p.run(t, test.damage)
			p.with(t, func(table *Tables) error {
				differ, err := table.Differs()
				if !slices.Equal(differ, test.want) {
					t.Errorf("%s: differs\n%s\nwant\n%s", test.name, strings.Join(differ, "\n"), strings.Join(test.want, "\n"))
				}
				return err
			}, saveChain())
			p.ensure(t, saveChain())
			if got := foreign(p.run(t, "IPT -t mangle -S")); got != others {
				t.Errorf("%s: rules of others were\n%s\nand are\n%s", test.name, others, got)
			}
		}
		p.run(t, "IPT -t mangle -A FORWARD -j RELINK-SAVE")
		p.ensure(t, removed(saveChain())...)
		if got := p.run(t, "IPT -t mangle -S"); strings.Contains(got, "-j RELINK-SAVE\n") || foreign(got) != others {
			t.Errorf("after the removal:\n%s", got)
		}
	})
}

// A chain of the host gets other rules, in one run for all tables. It goes with all jumps to it.
func TestChainsOfSeveralTables(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		for _, networks := range [][]int{{1}, {1, 2}, {3}} {
			p.ensure(t, saveChain(), p.masquerade(networks...))
		}
		p.with(t, func(table *Tables) error {
			_, rules, err := table.Rules("nat", "RELINK-NAT")
			if len(rules) != 1 || !strings.Contains(rules[0], p.address(3)) {
				t.Errorf("rules %v", rules)
			}
			return err
		})
		p.run(t, "IPT -t nat -N OTHER; IPT -t nat -A OTHER -o eth9 -g RELINK-NAT")
		p.ensure(t, removed(saveChain(), p.masquerade())...)
		if rest := p.run(t, "IPT -t nat -S; IPT -t mangle -S"); strings.Contains(rest, "RELINK") {
			t.Errorf("a chain stays without a rule:\n%s", rest)
		}
	})
}

// The variant in use can change: a kubelet comes that uses the other one. What was made before is found all the same.
func TestTheVariantChanges(t *testing.T) {
	p := backend{family: IPv4, variant: nft, path: sandbox(t)}
	p.ensure(t, p.masquerade(1))
	p.run(t, "iptables-legacy -t mangle -N KUBE-KUBELET-CANARY; iptables-legacy -t nat -N OTHER")
	for want, chain := range map[string]Chain{"iptables-nft": p.masquerade(1), "iptables-legacy": saveChain()} {
		p.in(t, func() error {
			chosen, err := Open(IPv4, chain)
			if err == nil && chosen.Program() != want {
				err = fmt.Errorf("%s: %s", chain.Name, chosen.Program())
			}
			return err
		})
	}
}

// A kernel without nftables, on a machine that has the programs. The chains are in the legacy tables.
func TestWithoutNFTables(t *testing.T) {
	p := backend{family: IPv4, variant: legacy, path: sandbox(t)}
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Failed to initialize nft: Protocol not supported' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"iptables-legacy", "iptables-legacy-restore"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.ensure(t, p.masquerade(1))
	p.in(t, func() error {
		table, err := open(IPv4, []string{dir}, removed(p.masquerade(1))...)
		if err != nil {
			return err
		}
		return table.Ensure()
	})
	if rest := p.run(t, "IPT -t nat -S"); strings.Contains(rest, "RELINK") {
		t.Errorf("left:\n%s", rest)
	}
}

// Failures are not taken for what is missing.
func TestFailures(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		before := p.run(t, "IPT -t mangle -S")
		for want, change := range map[string]func(*Tables){
			"exit status": func(table *Tables) { table.chains[0].Rules = []string{"-m comment --comment a -j NOSUCH"} },
			"-restore":    func(table *Tables) { table.chains[0].Table = "nosuch" },
		} {
			p.with(t, func(table *Tables) error {
				change(table)
				if err := table.Ensure(); err == nil || !strings.Contains(err.Error(), want) && p.variant == legacy {
					t.Errorf("%v, want %s", err, want)
				}
				return nil
			}, saveChain(), restoreChain())
		}
		if after := p.run(t, "IPT -t mangle -S"); after != before {
			t.Errorf("left: %s", after)
		}
	})
}

// The lock of the tables is held by somebody else for long.
func TestLocked(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	file, err := os.Create(os.Getenv("XTABLES_LOCKFILE"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := backend{family: IPv4, variant: legacy, path: sandbox(t)}
	p.run(t, "IPT -t nat -N RELINK-NAT")
	if err := flock.Try(file, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	p.with(t, func(table *Tables) error {
		table.wait = 1
		if err := table.Ensure(); !errors.Is(err, ErrLocked) {
			t.Errorf("list: %v", err)
		}
		_, err := table.run("*nat\n:RELINK-X - [0:0]\nCOMMIT\n", table.path+"-restore", "--noflush")
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "holding the xtables lock") {
			t.Errorf("change: %v", err)
		}
		return nil
	}, p.masquerade(1))
	p.variant = nft // It needs no such lock.
	p.ensure(t, saveChain())
}

// A script in place of iptables hangs, with a child that has its output.
func TestAProgramThatHangsEnds(t *testing.T) {
	dir := t.TempDir()
	sleep := fmt.Sprintf("sleep %d", 1000000+os.Getpid())
	for name, script := range map[string]string{"iptables-nft": "exec iptables-nft \"$@\"", "iptables-nft-restore": sleep + "\ntrue"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := backend{family: IPv4, variant: nft, path: sandbox(t)}
	p.with(t, func(table *Tables) error {
		table.path, table.limit = filepath.Join(dir, "iptables-nft"), time.Second
		other := exec.Command("sleep", "1000") // It is a child of the same thread.
		if err := other.Start(); err != nil {
			return err
		}
		start := time.Now()
		if err := table.Ensure(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "iptables-nft-restore --noflush --wait 5: no answer") {
			t.Errorf("change: %v", err)
		}
		if _, err := output(time.Second/2, "", "/bin/sh", "-c", sleep+"; true"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("list: %v", err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
		for deadline := time.Now().Add(30 * time.Second); running(t, sleep); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return errors.New("a child of the script is left")
			}
		}
		if err := other.Process.Kill(); err != nil {
			t.Errorf("the other child: %v", err)
		}
		if err := other.Wait(); err == nil || other.ProcessState.String() != "signal: killed" {
			t.Errorf("the other child: %v", err)
		}
		return nil
	}, saveChain())
}

// running reports whether a process has this command line.
func running(t *testing.T, command string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		words, _ := os.ReadFile(file) // It can have ended.
		return strings.ReplaceAll(string(words), "\x00", " ") == command+" "
	})
}

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
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
)

// What is right is not touched: the packets that a rule has counted are there still.
func TestEnsureTwice(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		chains := []Chain{saveChain(), restoreChain(), p.masquerade(2)}
		p.with(t, func(tables *Tables) error {
			differ, err := tables.Differs(chains...)
			want := []string{
				"chain RELINK-SAVE is missing", "jump from PREROUTING to RELINK-SAVE is missing", "chain RELINK-PUT is missing",
				"jump from OUTPUT to RELINK-PUT is missing", "chain RELINK-NAT is missing", "jump from POSTROUTING to RELINK-NAT is missing",
			}
			if !slices.Equal(differ, want) {
				t.Errorf("differs %q", differ)
			}
			return errors.Join(err, tables.Ensure(chains...), checkNoDifference(tables, chains...))
		})
		p.run(t, "IPT -t mangle -Z; IPT -t mangle -I RELINK-SAVE -c 7 9 -i eth9 -j RETURN; IPT -t mangle -D RELINK-SAVE 1")
		before := p.run(t, "IPT -t mangle -S -v; IPT -t nat -S -v")
		p.with(t, func(tables *Tables) error { return tables.Ensure(chains...) })
		if after := p.run(t, "IPT -t mangle -S -v; IPT -t nat -S -v"); after != before {
			t.Errorf("changed:\n%s\nto\n%s", before, after)
		}
	})
}

// A kill leaves what the first steps have made. Each such state is completed, and no step deletes what is right.
func TestEnsureAfterAKillAtEachStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		for _, begin := range []string{
			"true",
			"IPT -t mangle -N RELINK-SAVE; IPT -t mangle -A RELINK-SAVE -i eth2 -m comment --comment third -j RETURN; IPT -t mangle -A RELINK-SAVE -j ACCEPT; IPT -t mangle -A PREROUTING -j RELINK-SAVE",
		} {
			for k, whole := 0, false; !whole; k++ {
				p.run(t, begin)
				p.with(t, func(tables *Tables) error {
					steps, err := tables.plan([]Chain{saveChain()})
					whole = k == len(steps)
					if err := errors.Join(err, tables.editor.apply("mangle", steps[:k])); err != nil {
						return fmt.Errorf("first %d steps: %w", k, err)
					}
					return errors.Join(tables.Ensure(saveChain()), checkNoDifference(tables, saveChain()), tables.Remove("mangle", "RELINK-SAVE"))
				})
			}
		}
	})
}

// Remove is called again after a kill, too.
func TestRemoveAfterAKillAtEachStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		empty := p.run(t, "IPT -t mangle -S")
		for k, whole := 0, false; !whole; k++ {
			p.with(t, func(tables *Tables) error {
				if err := tables.Ensure(saveChain()); err != nil {
					return err
				}
				l, err := tables.list("mangle")
				steps := planRemove(l, "RELINK-SAVE")
				whole = k == len(steps)
				return errors.Join(err, tables.editor.apply("mangle", steps[:k]), tables.Remove("mangle", "RELINK-SAVE"), tables.Remove("mangle", "RELINK-SAVE"))
			})
			if left := p.run(t, "IPT -t mangle -S"); left != empty {
				t.Errorf("after %d steps: %s", k, left)
			}
		}
	})
}

func TestEnsureRepairs(t *testing.T) {
	tests := []struct {
		name, damage string
		want         []string
	}{
		{"a rule too much", "IPT -t mangle -I RELINK-SAVE 2 -j ACCEPT", []string{"rule is too much in RELINK-SAVE: -j ACCEPT"}},
		{"a rule twice", "IPT -t mangle -A RELINK-SAVE -i eth2 -m comment --comment third -j RETURN",
			[]string{"rule is too much in RELINK-SAVE: -i eth2 -m comment --comment third -j RETURN"}},
		{"a rule missing", "IPT -t mangle -D RELINK-SAVE 2",
			[]string{"rule is missing in RELINK-SAVE: -i eth1 -m comment --comment other -j CONNMARK --set-xmark 0x0/0x100"}},
		{"the wrong order", "IPT -t mangle -D RELINK-SAVE 3; IPT -t mangle -I RELINK-SAVE -i eth2 -m comment --comment third -j RETURN",
			[]string{
				`rule is out of place in RELINK-SAVE: -i eth0 -m conntrack --ctstate NEW -m comment --comment "a \"quoted\" it's \\" -j CONNMARK --set-xmark 0x100/0x100`,
				"rule is out of place in RELINK-SAVE: -i eth1 -m comment --comment other -j CONNMARK --set-xmark 0x0/0x100",
				"rule is out of place in RELINK-SAVE: -i eth2 -m comment --comment third -j RETURN",
			}},
		{"all gone", "IPT -t mangle -F RELINK-SAVE; IPT -t mangle -D PREROUTING 2", []string{
			`rule is missing in RELINK-SAVE: -i eth0 -m conntrack --ctstate NEW -m comment --comment "a \"quoted\" it's \\" -j CONNMARK --set-xmark 0x100/0x100`,
			"rule is missing in RELINK-SAVE: -i eth1 -m comment --comment other -j CONNMARK --set-xmark 0x0/0x100",
			"rule is missing in RELINK-SAVE: -i eth2 -m comment --comment third -j RETURN", "jump from PREROUTING to RELINK-SAVE is missing",
		}},
		{"the jump twice", "IPT -t mangle -I PREROUTING -m comment --comment 'relink: to the chain' -j RELINK-SAVE",
			[]string{`jump from PREROUTING to RELINK-SAVE is too much: -m comment --comment "relink: to the chain" -j RELINK-SAVE`}},
		{"a wrong jump twice", "IPT -t mangle -I PREROUTING -j RELINK-SAVE; IPT -t mangle -A PREROUTING -i eth9 -g RELINK-SAVE",
			[]string{"jump from PREROUTING to RELINK-SAVE is too much: -j RELINK-SAVE", "jump from PREROUTING to RELINK-SAVE is too much: -i eth9 -g RELINK-SAVE"}},
	}
	eachBackend(t, func(t *testing.T, p backend) {
		p.run(t, "IPT -t mangle -A PREROUTING -m comment --comment 'not -j RELINK-SAVE' -j ACCEPT; IPT -t mangle -N OTHER; IPT -t mangle -A OTHER -m comment --comment 'two\nlines' -j RETURN; IPT -t mangle -A OUTPUT -j OTHER")
		p.with(t, func(tables *Tables) error { return tables.Ensure(saveChain()) })
		p.run(t, "IPT -t mangle -A PREROUTING -j OTHER")
		others := foreign(p.run(t, "IPT -t mangle -S"))
		for _, test := range tests {
			p.run(t, test.damage)
			p.with(t, func(tables *Tables) error {
				differ, err := tables.Differs(saveChain())
				if !slices.Equal(differ, test.want) {
					t.Errorf("%s: differs\n%s\nwant\n%s", test.name, strings.Join(differ, "\n"), strings.Join(test.want, "\n"))
				}
				return errors.Join(err, tables.Ensure(saveChain()), checkNoDifference(tables, saveChain()))
			})
			if got := foreign(p.run(t, "IPT -t mangle -S")); got != others {
				t.Errorf("%s: rules of others were\n%s\nand are\n%s", test.name, others, got)
			}
		}
		p.run(t, "IPT -t mangle -A FORWARD -j RELINK-SAVE")
		p.with(t, func(tables *Tables) error { return tables.Remove("mangle", "RELINK-SAVE") })
		if got := p.run(t, "IPT -t mangle -S"); strings.Contains(got, "-j RELINK-SAVE\n") || foreign(got) != others {
			t.Errorf("after Remove:\n%s", got)
		}
	})
}

// Pods share a chain. Each adds and deletes its own rules.
func TestSharedChain(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		without := func(n int) func(Rule) bool {
			return func(r Rule) bool { return r.Comment() != fmt.Sprintf("shop/web-%d", n) }
		}
		p.with(t, func(tables *Tables) error {
			if rules, err := tables.Rules("nat", "RELINK-NAT"); len(rules) > 0 || err != nil {
				t.Errorf("without the chain: %v, %v", rules, err)
			}
			err := tables.Keep("nat", "RELINK-NAT", without(1))
			for _, n := range []int{1, 2, 3, 2} {
				err = errors.Join(err, tables.Ensure(p.masquerade(n)))
			}
			err = errors.Join(err, tables.Keep("nat", "RELINK-NAT", without(1)), tables.Keep("nat", "RELINK-NAT", without(1)))
			rules, listed := tables.Rules("nat", "RELINK-NAT")
			var comments []string
			for _, rule := range rules {
				comments = append(comments, rule.Comment())
			}
			if !slices.Equal(comments, []string{"shop/web-2", "shop/web-3"}) {
				t.Errorf("rules %v", rules)
			}
			differ, differs := tables.Differs(p.masquerade(1), p.masquerade(1))
			if differs == nil {
				t.Errorf("one chain twice: %v", differ)
			}
			differ, differs = tables.Differs(p.masquerade(1))
			if len(differ) != 1 || !strings.HasPrefix(differ[0], "rule is missing in RELINK-NAT: -s "+p.address(1)) {
				t.Errorf("differs %q", differ)
			}
			err = errors.Join(err, listed, differs, checkNoDifference(tables, p.masquerade(3)), tables.Keep("nat", "RELINK-NAT", func(Rule) bool { return false }))
			if left := p.run(t, "IPT -t nat -S"); strings.Contains(left, "RELINK") {
				t.Errorf("the chain stays without a rule:\n%s", left)
			}
			return err
		})
	})
}

// The variant in use can change: a kubelet comes that uses the other one. What was made before can be taken away all the same.
func TestTheVariantChanges(t *testing.T) {
	p := backend{family: IPv4, variant: nft, path: sandbox(t)}
	p.with(t, func(tables *Tables) error { return tables.Ensure(p.masquerade(1), saveChain()) })
	const list = "IPT -t nat -S; IPT -t mangle -S"
	made := p.run(t, list)
	p.variant = legacy
	p.run(t, "iptables-legacy -t mangle -N KUBE-KUBELET-CANARY")
	p.in(t, func() error {
		tables, err := Open(IPv4, "RELINK-")
		if err != nil {
			return err
		}
		others := tables.OtherVariants()
		if len(others) != 1 || tables.chosen.variant != legacy || others[0].chosen.variant != nft {
			return fmt.Errorf("%s, beside %d others", tables.Program(), len(others))
		}
		return errors.Join(others[0].Keep("nat", "RELINK-NAT", func(Rule) bool { return false }), others[0].Remove("mangle", "RELINK-SAVE"))
	})
	p.variant = nft
	if left := p.run(t, list); !strings.Contains(made, "RELINK-NAT") || strings.Contains(left, "RELINK") {
		t.Errorf("made:\n%s\nleft:\n%s", made, left)
	}
}

// A kernel without nftables, on a machine that has the programs. The chains are in the legacy tables.
func TestWithoutNFTables(t *testing.T) {
	p := backend{family: IPv4, variant: legacy, path: sandbox(t)}
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Failed to initialize nft: Protocol not supported' >&2\nexit 1\n"
	for _, name := range []string{"iptables-nft", "iptables-nft-save"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"iptables-legacy", "iptables-legacy-save"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.in(t, func() error {
		tables, err := open(IPv4, "RELINK-", []string{dir})
		if err != nil {
			return err
		}
		others := tables.OtherVariants()
		if len(others) != 1 {
			return fmt.Errorf("%s, beside %d others", tables.Program(), len(others))
		}
		return errors.Join(others[0].Keep("nat", "RELINK-NAT", func(Rule) bool { return false }), others[0].Remove("mangle", "RELINK-SAVE"))
	})
}

// Each of several processes makes its rules, and all make the chain.
func TestManyAtOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		var all sync.WaitGroup
		for n := 1; n <= 4; n++ {
			all.Go(func() {
				p.with(t, func(tables *Tables) error {
					tables.editor.wait = 30 // A slow machine.
					return tables.Ensure(saveChain(), restoreChain(), p.masquerade(n))
				})
			})
		}
		all.Wait()
		p.with(t, func(tables *Tables) error { return checkNoDifference(tables, saveChain(), restoreChain()) })
		rules := p.run(t, "IPT -t nat -S RELINK-NAT")
		if jumps := p.run(t, "IPT -t nat -S POSTROUTING"); strings.Count(rules, "-A ") != 4 || strings.Count(jumps, "-A ") != 1 {
			t.Errorf("%s\n%s", rules, jumps)
		}
	})
}

// Failures are not taken for what is missing.
func TestFailures(t *testing.T) {
	eachBackend(t, func(t *testing.T, p backend) {
		before := p.run(t, "IPT -t mangle -S")
		for name, change := range map[string]func(*Chain){
			`exit status 2`:                func(c *Chain) { c.Rules[0] = Rule{"-m", "comment", "--comment", "a", "-j", "NOSUCH"} },
			`exit status 3`:                func(c *Chain) { c.Table = "nosuch" },
			`"POSTROUTING": the name must`: func(c *Chain) { c.Name = "POSTROUTING" },
			`needs a comment`:              func(c *Chain) { c.Rules[0] = Rule{"-j", "ACCEPT"} },
			`the jump needs`:               func(c *Chain) { c.JumpComment = "" },
			`after the change, rule is missing in RELINK-SAVE: -i eth0 -m comment --comment a -j CONNMARK --set-mark 0x1/0x1; rule is too much`: func(c *Chain) {
				c.Rules = []Rule{{"-i", "eth0", "-m", "comment", "--comment", "a", "-j", "CONNMARK", "--set-mark", "0x1/0x1"}}
			},
		} {
			p.with(t, func(tables *Tables) error {
				c := saveChain()
				change(&c)
				if err := tables.Ensure(c); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%v, want %s", err, name)
				}
				return tables.Remove("mangle", "RELINK-SAVE")
			})
		}
		p.with(t, func(tables *Tables) error {
			tables.namespace, _ = os.Stat("/")
			if err := tables.Ensure(saveChain()); err == nil || !strings.Contains(err.Error(), "another network namespace") {
				t.Errorf("in another namespace: %v", err)
			}
			return nil
		})
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
	p.with(t, func(tables *Tables) error {
		tables.editor.wait = 1
		if _, err := tables.Rules("nat", "RELINK-NAT"); !errors.Is(err, ErrLocked) {
			t.Errorf("list: %v", err)
		}
		err := tables.editor.apply("nat", []step{{kind: newChain, chain: "RELINK-NAT"}})
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "holding the xtables lock") {
			t.Errorf("change: %v", err)
		}
		return nil
	})
	p.variant = nft // It needs no such lock.
	p.with(t, func(tables *Tables) error { return tables.Ensure(saveChain()) })
}

// Another process of relink has the chains for long. What is right is right without the lock.
func TestLockedByRelink(t *testing.T) {
	p := backend{family: IPv4, variant: nft, path: sandbox(t)}
	p.with(t, func(tables *Tables) error {
		lock, err := tables.lock(time.Second)
		if err != nil {
			return err
		}
		defer lock.Close()
		tables.editor.wait = 0
		if err := tables.Ensure(saveChain()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "in use by") {
			t.Errorf("%v, want %v", err, ErrLocked)
		}
		_ = lock.Close()
		tables.editor.wait = patience
		if err := tables.Ensure(saveChain()); err != nil {
			return err
		}
		if lock, err = tables.lock(time.Second); err != nil {
			return err
		}
		defer lock.Close()
		return tables.Ensure(saveChain())
	})
}

// A script in place of iptables hangs, with a child that has its output.
func TestAProgramThatHangsEnds(t *testing.T) {
	dir := t.TempDir()
	sleep := fmt.Sprintf("sleep %d", 1000000+os.Getpid())
	script := `#!/bin/sh
case "$*" in *" -S "*|*version*) exec iptables-nft "$@";; esac
` + sleep + `
true
`
	if err := os.WriteFile(filepath.Join(dir, "iptables-nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := backend{family: IPv4, variant: nft, path: sandbox(t)}
	p.with(t, func(tables *Tables) error {
		tables.editor.path, tables.editor.limit = filepath.Join(dir, "iptables-nft"), time.Second
		other := exec.Command("sleep", "1000") // It is a child of the same thread.
		if err := other.Start(); err != nil {
			return err
		}
		start := time.Now()
		if err := tables.Ensure(saveChain()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "-N RELINK-SAVE --wait 5: no answer") {
			t.Errorf("change: %v", err)
		}
		if _, err := output(time.Second/2, "/bin/sh", "-c", sleep+"; true"); !errors.Is(err, context.DeadlineExceeded) {
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
	})
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

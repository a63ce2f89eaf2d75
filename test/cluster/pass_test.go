package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/node"
)

// options are those of a pass over the row. It asks the agent.
func (s *rowState) options(t *testing.T) gc.Options {
	t.Helper()
	networks, err := lease.Networks(s.leaseDir)
	if err != nil {
		t.Fatal(err)
	}
	from := audit.Sources{Store: s.store, LeaseDirs: []string{s.leaseDir}, Runtime: s.agent(), Judge: s.agent(), Asker: s.agent(), CacheDir: s.caches, AllProcesses: true}
	for _, network := range networks {
		from.Leases = append(from.Leases, s.open(t, network))
	}
	return gc.Options{Sources: from}
}

// pass makes one pass. want has each thing that is not fine: what became of it, and after the colon what the evidence and
// the reason say, with bars between:
//
//	lan .2 freed, reserved: its network namespace is gone | seen dead twice
//	checkpoint of c1 waiting: its network namespace is gone
func (s *rowState) pass(t *testing.T, when string, want ...string) gc.PassReport {
	t.Helper()
	return s.until(t, when, 1, want)
}

// notes is pass with a grace that is not over: nothing is freed, however often a pass is made.
func (s *rowState) notes(t *testing.T, when string, want ...string) {
	t.Helper()
	s.until(t, when, time.Hour, want)
}

// until makes passes until the outcomes are those that are wanted. Another process of this machine can have a new namespace
// with the inode of one that is gone. While that cannot be told apart, the pass keeps what it is about. So a thing can be
// missing for a moment. Any other difference is an error at once.
func (s *rowState) until(t *testing.T, when string, grace time.Duration, want []string) gc.PassReport {
	t.Helper()
	for tries := 50; ; tries-- {
		r, err := s.run(t, grace)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		left, differs := s.compare(r, want)
		if differs == "" && len(left) == 0 {
			return r
		}
		if tries == 0 || differs != "" {
			t.Errorf("%s:\n%s\nmissing\n%s\nproblems: %q", when, differs, strings.Join(left, "\n"), r.Problems)
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *rowState) run(t *testing.T, grace time.Duration) (gc.PassReport, error) {
	t.Helper()
	o := s.options(t)
	o.Grace = grace
	return gc.Run(context.Background(), o)
}

// compare returns what is wanted and missing, and what is there and not wanted.
func (s *rowState) compare(r gc.PassReport, want []string) (left []string, differs string) {
	left = slices.Clone(want)
	for _, o := range r.Outcomes {
		is, why := s.became(o), strings.Join(o.Evidence, "; ")+"; "+o.Reason
		i := slices.IndexFunc(left, func(w string) bool { return matches(w, is, why) })
		if i < 0 {
			differs += is + ": " + why + "\n"
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	return left, differs
}

func matches(want, is, why string) bool {
	head, parts, _ := strings.Cut(want, ": ")
	if head != is {
		return false
	}
	for part := range strings.SplitSeq(parts, " | ") {
		if !strings.Contains(why, part) {
			return false
		}
	}
	return true
}

// became is what became of a thing, in short.
func (s *rowState) became(o gc.PassOutcome) string {
	is := "checkpoint of " + o.Attachment.ContainerID
	if o.Address.IsValid() {
		is = fmt.Sprintf("%s .%d", o.Network, o.Address.As4()[3])
	}
	is += " " + string(o.State)
	if o.AddressState != "" {
		is += ", " + string(o.AddressState)
	}
	return is
}

// reclaims makes a pass that sees what is to be freed, and then passes until all of it is freed, for the same reasons. Nothing
// else is freed.
func (s *rowState) reclaims(t *testing.T, when string, want ...string) {
	t.Helper()
	var seen, passed []string
	for _, w := range want {
		head, parts, _ := strings.Cut(w, ": ")
		thing, _, _ := strings.Cut(head, " freed")
		seen, passed = append(seen, thing+" waiting: "+parts+" | seen dead for "), append(passed, thing+" changed meanwhile: "+parts)
	}
	s.notes(t, when+", seen", seen...)
	left := want
	for tries := 50; len(left) > 0; tries-- {
		r, err := s.run(t, 1)
		if err != nil || tries == 0 {
			t.Fatalf("%s: %v, missing\n%s", when, err, strings.Join(left, "\n"))
		}
		var differs string
		left, differs = s.compare(r, left)
		for line := range strings.Lines(differs) {
			head, why, _ := strings.Cut(strings.TrimSpace(line), ": ")
			// It was missing for a moment, see until.
			if !slices.ContainsFunc(slices.Concat(seen, passed), func(w string) bool { return matches(w, head, why) }) {
				t.Errorf("%s: %s", when, line)
			}
		}
	}
}

// keeps makes a pass, and it finds nothing. What a later one would free, this one would see.
func (s *rowState) keeps(t *testing.T, when string) {
	t.Helper()
	if r := s.pass(t, when); !r.Complete() {
		t.Errorf("%s: %q", when, r.Problems)
	}
}

// judged expects what the agent says of an owner now.
func (s *rowState) judged(t *testing.T, of attachment.Owner, standing owner.Standing, why string) {
	t.Helper()
	got := s.agent().Judge(context.Background(), []attachment.Owner{of})
	if len(got) != 1 || got[0].Standing != standing || !strings.Contains(got[0].Reason, why) {
		t.Errorf("%+v, want %s: %s", got, standing, why)
	}
}

// relink runs the program as an operator does, and expects this status and each of the parts.
func (s *rowState) relink(t *testing.T, status int, args string, parts ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Bin, "relink"), append([]string{"--checkpoint-dir", s.store.Dir()}, strings.Fields(args)...)...)
	cmd.Args = append(cmd.Args, "--data-dir", s.leaseDir, "--cni-cache", s.caches)
	cmd.Env = []string{control.SocketEnv + "=" + s.socket, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != status {
		t.Errorf("relink %s: %s, want status %d\n%s", args, cmd.ProcessState, status, out)
	}
	for _, part := range parts {
		if !strings.Contains(string(out), part) {
			t.Errorf("relink %s does not say %q:\n%s", args, part, out)
		}
	}
	return string(out)
}

// The evidence, as it is told.
const (
	namespaceGone = "its network namespace is gone: "
	noSandbox     = "the container runtime does not have the sandbox"
	dead          = namespaceGone + " | " + noSandbox
)

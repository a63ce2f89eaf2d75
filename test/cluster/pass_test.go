package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/reclaim"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/node"
)

// options are those of a pass over the site. It asks the agent, and its grace is over at once.
func (s *site) options(t *testing.T) reclaim.Options {
	t.Helper()
	networks, err := lease.Networks(s.leaseDir)
	if err != nil {
		t.Fatal(err)
	}
	from := audit.Sources{Store: s.store, LeaseDir: s.leaseDir, Runtime: s.agent(), Judge: s.agent(), Asker: s.agent(), CacheDir: s.caches, AllProcesses: true}
	for _, network := range networks {
		from.Leases = append(from.Leases, s.open(t, network))
	}
	return reclaim.Options{Sources: from, Grace: 1}
}

// pass makes one pass. want has each thing that is not fine: what became of it, and after the colon what the evidence and
// the reason say, with bars between:
//
//	lan .2 freed, reserved: its network namespace is gone | seen dead twice
//	checkpoint of c1 waiting: its network namespace is gone
func (s *site) pass(t *testing.T, when string, want ...string) reclaim.Report {
	t.Helper()
	r, err := s.run(t)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	s.compare(t, when, r, want)
	return r
}

func (s *site) run(t *testing.T) (reclaim.Report, error) {
	t.Helper()
	return reclaim.Run(context.Background(), s.options(t))
}

func (s *site) compare(t *testing.T, when string, r reclaim.Report, want []string) {
	t.Helper()
	var got []string
	left := slices.Clone(want)
	for _, o := range r.Outcomes {
		is, why := s.became(o), strings.Join(o.Evidence, "; ")+"; "+o.Why
		got = append(got, is+": "+why)
		left = slices.DeleteFunc(left, func(w string) bool { return matches(w, is, why) })
	}
	if len(left) > 0 || len(got) != len(want) {
		t.Errorf("%s:\n%s\nwant\n%s\nproblems: %q", when, strings.Join(got, "\n"), strings.Join(want, "\n"), r.Problems)
	}
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
func (s *site) became(o reclaim.Outcome) string {
	is := "checkpoint of " + o.Attachment.ContainerID
	if o.Address.IsValid() {
		is = fmt.Sprintf("%s .%d", o.Network, o.Address.As4()[3])
	}
	is += " " + string(o.State)
	if o.Becomes != "" {
		is += ", " + string(o.Becomes)
	}
	return is
}

// reclaims makes two passes. The first sees what the second one frees, for the same reasons.
func (s *site) reclaims(t *testing.T, when string, want ...string) {
	t.Helper()
	var seen []string
	for _, w := range want {
		head, parts, _ := strings.Cut(w, ": ")
		thing, _, is := strings.Cut(head, " freed")
		if is {
			w = thing + " waiting: " + parts + " | seen dead for the first time"
		}
		seen = append(seen, w)
	}
	s.pass(t, when+", first", seen...)
	s.pass(t, when, want...)
}

// keeps makes as many passes as free what is proven dead, and they find nothing.
func (s *site) keeps(t *testing.T, when string) {
	t.Helper()
	for range 2 {
		if r := s.pass(t, when); !r.Complete() {
			t.Errorf("%s: %q", when, r.Problems)
		}
	}
}

// judged expects what the agent says of an owner now.
func (s *site) judged(t *testing.T, of attachment.Owner, standing owner.Standing, why string) {
	t.Helper()
	got := s.agent().Judge(context.Background(), []attachment.Owner{of})
	if len(got) != 1 || got[0].Standing != standing || !strings.Contains(got[0].Why, why) {
		t.Errorf("%+v, want %s: %s", got, standing, why)
	}
}

// relink runs the program as an operator does, and expects this status and each of the parts.
func (s *site) relink(t *testing.T, status int, args string, parts ...string) string {
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
	twice         = dead + " | seen dead twice"
)

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Hundreds of like things are a few lines, although the proof of each is another one. A verbose screen shows each.
func TestLikeThingsAreFewLines(t *testing.T) {
	const n = 250
	var checked restore.Report
	var restored change.Report[restore.Outcome]
	var audited audit.NodeReport
	var collected gc.PassReport
	for i := range n {
		key, pod := attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"}, attachment.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		o := restore.Outcome{Outcome: change.Outcome{Attachment: key, Pod: pod, State: restore.SandboxGone, Reason: fmt.Sprintf("the sandbox is gone: /run/netns/%d", i)}}
		checked.Outcomes = append(checked.Outcomes, o)
		o.State, o.Problem = restore.Blocked, restore.Problem{Cause: "something keeps the sandboxes", Reason: fmt.Sprintf("process %d keeps it", i)}
		checked.Outcomes = append(checked.Outcomes, o)
		o.State, o.Problem, o.Reason = change.Failed, restore.Problem{}, fmt.Sprintf("open /run/%s/.eth0.json%d: no space left on device", key.ContainerID, 7*i)
		restored.Outcomes = append(restored.Outcomes, o)
		f := audit.Finding{
			Kind: audit.CheckpointWithoutSandbox, Severity: audit.Information, Attachment: key, Pod: pod, Fields: audit.Fields{NamespaceState: sandbox.VerdictGone},
			Evidence: []string{fmt.Sprintf("its network namespace is gone: a mount at /run/netns/%d has its inode now", i), "the container runtime does not have the sandbox"},
			Subject:  audit.Subject{Checkpoint: &checkpoint.Record{}},
		}
		audited.Findings = append(audited.Findings, f)
		collected.Outcomes = append(collected.Outcomes, gc.PassOutcome{Finding: f, State: gc.Freed})
	}
	for verb, test := range map[string]struct {
		write func(*cli.Screen)
		want  []string
	}{
		"check": {func(s *cli.Screen) { checkLines(checked, nil, "/run", s) }, []string{
			"250 interfaces (shop/web-0, shop/web-1, shop/web-2, and 247 more): the sandbox is gone. One of them: the sandbox is gone: /run/netns/0",
			"250 interfaces (shop/web-0, shop/web-1, shop/web-2, and 247 more): something keeps the sandboxes. One of them: ",
		}},
		"restore": {func(s *cli.Screen) {
			newOutcomes(restored, "", "POD", func(o restore.Outcome) outcome {
				return newOutcome(o.Outcome, o.Attachment.ContainerID, podCell(o.Pod, ""))
			}, change.Failed).write(s)
		}, []string{
			"250 interface", "(shop/web-0, shop/web-1, shop/web-2, and 247 more): open /run/ID/.eth0.json: no space left on device. One of them: FAILED: open /run/c0/",
		}},
		"audit": {func(s *cli.Screen) { auditLines(audited, s) }, []string{
			"information: checkpoint without sandbox: 250 attachments (shop/web-0, shop/web-1, shop/web-2, and 247 more): the network namespaces are gone; " +
				"the container runtime does not have the sandbox. One of them: its network namespace is gone: a mount at /run/netns/0 has its inode now",
		}},
		"gc": {func(s *cli.Screen) { gcLines(collected, s) }, []string{"freed: checkpoint: 250 attachments (shop/web-0, shop/web-1, shop/web-2, and 247 more): the network namespaces are gone; "}},
	} {
		for _, verbose := range []bool{false, true} {
			var out bytes.Buffer
			test.write(&cli.Screen{Verbosity: cli.Verbosity{Verbose: verbose}, Out: &printable.Writer{Output: &out}, Err: &out})
			lines := strings.Count(out.String(), "\n")
			if verbose && lines < n || !verbose && lines > 4 {
				t.Errorf("%s, verbose %v: %d lines:\n%.2000s", verb, verbose, lines, &out)
			}
			for _, want := range test.want {
				if !verbose && !strings.Contains(out.String(), want) {
					t.Errorf("%s does not say %q:\n%s", verb, want, &out)
				}
			}
		}
	}
}

func TestFolded(t *testing.T) {
	all := strings.Fields("a b a a c a a a c")
	says := func(s string) string { return s }
	var got []string
	for _, group := range foldEqual(all, &cli.Screen{}, says) {
		got = append(got, strings.Join(group, ""))
	}
	if diff := cmp.Diff([]string{"aaaaaa", "b", "c", "c"}, got); diff != "" {
		t.Error(diff)
	}
	if groups := foldEqual(all, &cli.Screen{Verbosity: cli.Verbosity{Verbose: true}}, says); len(groups) != len(all) {
		t.Errorf("a verbose screen folds: %v", groups)
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 attachments": printable.Count(0, "attachment"), "1 attachment": printable.Count(1, "attachment"), "2 sandboxes": printable.Count(2, "sandbox"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

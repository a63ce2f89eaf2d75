package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
)

// startProcess starts a process in the sandbox. It returns the path of its namespace in /proc.
func (p *liveSandbox) startProcess(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+p.netns, "sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	was := must(p.store.Load("c1", "eth0"))(t).Namespace
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		was.Path = path
		if kernel.CheckNamespace(was) == nil {
			return path
		}
		if time.Now().After(deadline) {
			t.Fatal("the process does not come to be in the sandbox")
		}
	}
}

// A sandbox that is gone is reported. It is no failure, because nothing is left to restore.
func TestASandboxThatIsGoneIsNoFailure(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testing.T, *liveSandbox)
		says   string
	}{
		"nothing is at its path": {func(*testing.T, *liveSandbox) {}, "no network namespace: it does not exist"},
		"another is at its path": {func(t *testing.T, p *liveSandbox) { fresh.At(t, p.netns) }, "another namespace is there now"},
		"of an earlier boot": {func(t *testing.T, p *liveSandbox) {
			r := must(p.store.Load("c1", "eth0"))(t)
			r.Namespace.BootID = "00000000-0000-0000-0000-000000000000"
			save(t, p.store, r)
			fresh.At(t, p.netns)
		}, "recorded in an earlier boot"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newLiveSandbox(t)
			fresh.Remove(t, p.netns)
			test.change(t, p)
			for _, dry := range []bool{true, false} {
				report := must(Run(t.Context(), Options{Store: p.store, DryRun: dry}))(t)
				o := report.Outcomes[0]
				if !report.Complete() || o.IsAsRecorded() || o.Differs() {
					t.Errorf("dry %v: the report is as recorded: %v; the attachment is: %v, differs: %v", dry, report.Complete(), o.IsAsRecorded(), o.Differs())
				}
				p.expectOutcome(t, o, SandboxGone, "the sandbox is gone: "+p.netns+": ", test.says)
			}
		})
	}
}

// The path is gone, but a process lives on in the namespace. Its interface is restored there.
func TestASandboxThatIsElsewhereIsRestoredThere(t *testing.T) {
	p := newLiveSandbox(t)
	path := p.startProcess(t)
	fresh.Remove(t, p.netns)
	fresh.At(t, p.netns) // This namespace is a stranger's. Nothing is built in it.
	p.loseParent(t)
	note := fmt.Sprintf("sandbox c1: the sandbox is not at %s any more, but at %s: relink capture --refresh c1 records that", p.netns, path)
	for _, want := range []struct {
		dry   bool
		state change.State
	}{{true, ToRestore}, {false, Restored}, {true, AsRecorded}} {
		report := must(Run(t.Context(), Options{Store: p.store, DryRun: want.dry}))(t)
		p.expectOutcome(t, report.Outcomes[0], want.state)
		if !slices.Equal(report.Notes, []string{note}) {
			t.Errorf("notes %q", report.Notes)
		}
	}
	if there := fresh.IP(t, path, "-o addr show dev eth0"); !strings.Contains(there, "10.1.0.2/24") {
		t.Errorf("in the sandbox: %s", there)
	}
	if stranger := fresh.IP(t, p.netns, "-o link"); strings.Contains(stranger, "eth0") {
		t.Errorf("in the stranger's: %s", stranger)
	}
	if r := must(p.store.Load("c1", "eth0"))(t); r.Namespace.Path != p.netns {
		t.Errorf("the checkpoint names %s: that is for relink capture to change", r.Namespace.Path)
	}
}

// A restore of one pod does not report where the sandboxes of others are. An interrupted restore proves nothing.
func TestOnlyWhatIsSelectedIsLookedFor(t *testing.T) {
	p := newLiveSandbox(t)
	path := p.startProcess(t)
	r := must(p.store.Load("c1", "eth0"))(t)
	r.Attachment.ContainerID, r.Namespace.Path = "c2", path
	save(t, p.store, r)
	fresh.Remove(t, p.netns)
	report := must(Run(t.Context(), Options{Store: p.store, Select: selection.Selection{Names: []string{"c2"}}, DryRun: true}))(t)
	if len(report.Outcomes) != 1 || len(report.Notes) > 0 {
		t.Errorf("%d attachments, notes %q", len(report.Outcomes), report.Notes)
	}
	gone := r
	gone.Attachment.ContainerID, gone.Namespace.Path = "c3", "/run/netns/nowhere"
	gone.Namespace.Inode, gone.Namespace.Cookie = 1, 1
	save(t, p.store, gone)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	report = must(Run(ctx, Options{Store: p.store, Select: selection.Selection{Names: []string{"c3"}}}))(t)
	p.expectOutcome(t, report.Outcomes[0], change.NotTried, "interrupted before its turn")
	report = must(Run(t.Context(), Options{Store: p.store, Select: selection.Selection{Names: []string{"c3"}}}))(t)
	p.expectOutcome(t, report.Outcomes[0], SandboxGone)
}

// A namespace that something keeps is not gone, even if nobody can enter it. The reason says what keeps it.
func TestASandboxThatSomethingKeepsFails(t *testing.T) {
	p := newLiveSandbox(t)
	f, err := os.Open(p.netns)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, p.netns)
	report := must(Run(t.Context(), Options{Store: p.store}))(t)
	p.expectOutcome(t, report.Outcomes[0], change.Failed, fmt.Sprintf("but an open file of process %d keeps the namespace", os.Getpid()), "relink forget c1")
	if report.Complete() {
		t.Error("the report says that all is as recorded")
	}
	_ = f.Close()
	p.expectOutcome(t, p.restore(t, false), SandboxGone)
}

// Another namespace can have the recorded inode by now. Without a cookie nothing is built in it.
func TestASandboxWithoutACookieIsNotTakenForAnother(t *testing.T) {
	p := newLiveSandbox(t)
	path := p.startProcess(t)
	r := must(p.store.Load("c1", "eth0"))(t)
	r.Namespace.Cookie = 0
	save(t, p.store, r)
	fresh.Remove(t, p.netns)
	p.loseParent(t)
	p.expectOutcome(t, p.restore(t, false), change.Failed, "The record has no cookie to tell", "relink capture --refresh")
	if there := fresh.IP(t, path, "-o link"); strings.Contains(there, "eth0") {
		t.Errorf("it was built: %s", there)
	}
}

// A sandbox can disappear while the restore waits for the devices of others. The proof that it is gone reads all of /proc within a
// limit, which a busy machine can miss: then another sandbox has to go.
func TestASandboxThatGoesDuringTheRestore(t *testing.T) {
	const tries = 5
	for range tries {
		p := newLiveSandbox(t)
		fresh.IP(t, "", "link del lan0")
		went := false
		report := must(Run(t.Context(), Options{Store: p.store, Wait: time.Minute, Waiting: func([]string) {
			if !went {
				fresh.Remove(t, p.netns)
				parent(t)
			}
			went = true
		}}))(t)
		if strings.Contains(report.Outcomes[0].Reason, context.DeadlineExceeded.Error()) {
			p.expectOutcome(t, report.Outcomes[0], change.Failed, "whether the sandbox is gone is not known: ")
			continue
		}
		p.expectOutcome(t, report.Outcomes[0], SandboxGone, "the sandbox is gone: ", "it does not exist")
		if !report.Complete() {
			t.Errorf("problems %q", report.Problems)
		}
		return
	}
	t.Errorf("no proof was in time, %d times", tries)
}

// For a namespace that is not at its path, the evidence decides, and its text is the reason.
func TestWhatTheEvidenceOfANamespaceMeans(t *testing.T) {
	const path = "/run/netns/web"
	missing := fmt.Errorf("%s: %w: it does not exist", path, kernel.ErrNoNamespace)
	was := attachment.Namespace{Path: path, BootID: "b", Device: 4, Inode: 7, Cookie: 9}
	another := was.Same(attachment.Namespace{BootID: "b", Device: 4, Inode: 8})
	for name, test := range map[string]struct {
		why    error
		now    sandbox.Evidence
		cookie uint64
		state  change.State
		reason string
	}{
		"gone": {missing, sandbox.Evidence{Verdict: sandbox.VerdictGone}, 9, SandboxGone, "the sandbox is gone: /run/netns/web: no network namespace: it does not exist"},
		"gone, and another is there": {another, sandbox.Evidence{Verdict: sandbox.VerdictGone}, 9, SandboxGone,
			"the sandbox is gone: /run/netns/web: another namespace is there now (inode 4:8, recorded 4:7)"},
		"kept": {missing, sandbox.Evidence{Verdict: sandbox.VerdictAlive, KeptBy: "a socket of process 12"}, 9, change.Failed,
			"/run/netns/web: no network namespace: it does not exist; but a socket of process 12 keeps the namespace. " +
				"No mount and no process shows it, so that nothing is restored in it. If the pod is gone: relink forget c1 --force"},
		"kept, perhaps": {missing, sandbox.Evidence{Verdict: sandbox.VerdictAlive, KeptBy: "a thread of process 12"}, 0, change.Failed,
			"/run/netns/web: no network namespace: it does not exist; a thread of process 12 keeps the recorded namespace, or another one that has its inode now. " +
				"The record has no cookie to tell. If a pod lives in it: relink capture --refresh shop/web-0 records it again"},
		"not known": {another, sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "/proc is not mounted"}, 9, change.Failed,
			"/run/netns/web: another namespace is there now (inode 4:8, recorded 4:7); whether the sandbox is gone is not known: /proc is not mounted"},
		"back": {missing, sandbox.Evidence{Verdict: sandbox.VerdictAlive}, 9, change.Failed,
			"/run/netns/web: no network namespace: it does not exist when it was looked at first, and is back now: restore again"},
	} {
		t.Run(name, func(t *testing.T) {
			at := was
			at.Cookie = test.cookie
			m := newState(&checkpoint.Record{Attachment: attachment.Key{ContainerID: "c1"}, Pod: attachment.Pod{Namespace: "shop", Name: "web-0"}, Namespace: at})
			m.missing = test.why
			m.setNamespaceOutcome(test.now)
			if m.outcome.State != test.state || m.outcome.Reason != test.reason {
				t.Errorf("%s: %s\nwant %s: %s", m.outcome.State, m.outcome.Reason, test.state, test.reason)
			}
			if !kernel.IsMissing(test.why) || kernel.IsMissing(errors.New("permission denied")) {
				t.Error("what the path shows is not told right")
			}
		})
	}
}

// Another namespace is at the sandbox's path. That it has none of the sandbox's interfaces proves nothing.
func TestAnotherNamespaceSaysNothingOfTheSandboxsInterface(t *testing.T) {
	p := newLiveSandbox(t)
	records, _, err := p.store.List()
	if err != nil {
		t.Fatal(err)
	}
	empty := must(kernel.Open(fresh.Sandbox(t)))(t)
	defer empty.Close()
	record, c := records[0], newTestChain(&Restorer{store: p.store}, Options{})
	record.Namespace = empty.Identity()
	if c.isInSandbox(record) {
		t.Error("the sandbox is empty")
	}
	record.Namespace.Inode++
	if !c.isInSandbox(record) {
		t.Error("another namespace was looked into")
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/terminal"
)

// remembered returns a store with the checkpoint of a live sandbox: its namespace is the test's own.
func remembered(t *testing.T) *checkpoint.Store {
	t.Helper()
	namespace, err := identity.Read("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := checkpoint.OpenStore(dir)
	err = store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, Pod: attachment.Pod{Namespace: "shop", Name: "web-0"},
		Namespace: namespace,
		Interface: netstate.Interface{
			Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:05", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
			Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "lan0", MTU: 1500}},
		},
		CNI:    checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
		Writer: "test", CapturedAt: time.Now().UTC(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// left returns the number of checkpoints in the store.
func left(t *testing.T, store *checkpoint.Store) int {
	t.Helper()
	records, unreadable, err := store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(unreadable, err)
	}
	return len(records)
}

// typed runs relink on a terminal of 80 columns, waits for the question, and types the answer. It returns the text on
// the terminal and the exit status.
func typed(t *testing.T, answer, args string) (string, int) {
	t.Helper()
	return typedAfter(t, "[y/N] ", answer, args)
}

// typedAfter is typed for a question that ends in another way.
func typedAfter(t *testing.T, question, answer, args string) (string, int) {
	t.Helper()
	return terminal.TypeAfter(t, "relink", question, answer, args)
}

// Only a yes forgets anything. One ^C ends the command.
func TestForgetTakesAnAnswer(t *testing.T) {
	store := remembered(t)
	const warning = "relink restore will not bring this interface back\n1 to free\n"
	forget := "--checkpoint-dir " + store.Dir() + " forget web-0 --force "
	for name, test := range map[string]struct{ answer, args string }{
		"no":             {"n\n", forget},
		"an empty line":  {"\n", forget},
		"the end (^D)":   {"\x04", forget},
		"interrupt (^C)": {"\x03", forget},
		"quiet":          {"n\n", forget + "-q"},
		"as JSON":        {"n\n", forget + "-o json"},
	} {
		t.Run(name, func(t *testing.T) {
			shown, status := typed(t, test.answer, test.args)
			if status != cli.Differs || !strings.HasSuffix(shown, "\nnothing is freed\n") || left(t, store) != 1 {
				t.Errorf("exit status %d, %d checkpoints are left:\n%s", status, left(t, store), shown)
			}
			if before, _, _ := strings.Cut(shown, "Free 1 thing? [y/N] "); !strings.HasPrefix(before, "to free: checkpoint: shop/web-0") || !strings.HasSuffix(before, warning) {
				t.Errorf("before it asks it does not say all of what it would forget and why:\n%s", shown)
			}
		})
	}
}

// The question is not part of the output.
func TestForgetAsksBesideItsOutput(t *testing.T) {
	store := remembered(t)
	file := filepath.Join(t.TempDir(), "out")
	forget := "--checkpoint-dir " + store.Dir() + " forget web-0 --force"
	for _, streams := range []string{" </dev/null", " 2>" + file} {
		out, err := terminalOf(t, "80", nil, forget+streams).CombinedOutput()
		said, _ := os.ReadFile(file)
		if says := string(out) + string(said); err == nil || !strings.Contains(says, "needs --yes where nobody can be asked") || strings.Contains(says, "[y/N]") {
			t.Errorf("with%s it says: %v\n%s", streams, err, says)
		}
	}
	shown, status := typed(t, "y\n", forget+" >"+file)
	said, err := os.ReadFile(file)
	if err != nil || status != cli.OK || left(t, store) != 0 {
		t.Fatalf("exit status %d, %v:\n%s", status, err, shown)
	}
	if !strings.Contains(shown, "to free") || strings.Contains(shown, "1 freed") {
		t.Errorf("the terminal shows:\n%s", shown)
	}
	if !strings.HasPrefix(string(said), "freed: ") || !strings.Contains(string(said), "\n1 freed\n") || strings.Contains(string(said), "[y/N]") {
		t.Errorf("the output is:\n%s", said)
	}
}

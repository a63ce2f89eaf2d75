package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/test/terminal"
)

// onTerminal returns what relink writes to a terminal of so many columns.
func onTerminal(t *testing.T, columns string, env []string, args ...string) string {
	t.Helper()
	cmd := terminalOf(t, columns, env, strings.Join(args, " "))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// terminalOf prepares relink on a terminal of so many columns.
func terminalOf(t *testing.T, columns string, env []string, args string) *exec.Cmd {
	t.Helper()
	return terminal.Command(t, "relink", columns, env, args)
}

// relink uses colours only on a terminal that wants them.
func TestColoursOnlyOnATerminalThatWantsThem(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(control.SocketEnv, filepath.Join(dir, "none.sock"))
	status := []string{"--checkpoint-dir", dir, "status"}
	const agent = "  none runs: after a loss, type relink restore\n"
	plain := "nothing is remembered in " + dir + "\nAGENT\n" + agent
	if out := onTerminal(t, "80", nil, status...); out != "\x1b[1mnothing is remembered in "+dir+"\x1b[0m\n\x1b[1mAGENT\x1b[0m\n"+agent {
		t.Errorf("%q", out)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if out := onTerminal(t, "80", []string{env}, status...); out != plain {
			t.Errorf("%s: %q", env, out)
		}
	}
	var piped bytes.Buffer
	if code := run(t.Context(), status, &piped, &piped); code != cli.OK || piped.String() != plain {
		t.Errorf("%d, %q", code, &piped)
	}
}

// An attachment that was not looked at because of an interrupt has not failed.
func TestAnInterruptedLookSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	for _, verb := range []string{"status", "list", "check"} {
		var stdout, stderr bytes.Buffer
		code := run(ctx, []string{verb, "--checkpoint-dir", dir}, &stdout, &stderr)
		if code != cli.Usage || stdout.Len() > 0 || stderr.String() != "relink: interrupted before everything was looked at\n" {
			t.Errorf("%s: exit status %d, %q, %q", verb, code, &stdout, &stderr)
		}
	}
}

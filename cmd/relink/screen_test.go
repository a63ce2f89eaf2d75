package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/binaries"
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

// terminalOf prepares relink on a terminal of so many columns. args are words of a shell, such as "list >file".
func terminalOf(t *testing.T, columns string, env []string, args string) *exec.Cmd {
	t.Helper()
	bin, err := filepath.Abs("../../bin/test")
	if err == nil {
		err = binaries.Build(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	line := "stty cols " + columns + "; exec " + filepath.Join(bin, "relink") + " " + args
	cmd := exec.Command("script", "-qec", line, "/dev/null")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "SHELL=/bin/sh"}, env...)
	return cmd
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
	if code := run(t.Context(), status, &piped, &piped); code != exitOK || piped.String() != plain {
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
		if code != exitUsage || stdout.Len() > 0 || stderr.String() != "relink: interrupted before everything was looked at\n" {
			t.Errorf("%s: exit status %d, %q, %q", verb, code, &stdout, &stderr)
		}
	}
}

// --watch ends if nobody can read what it shows.
func TestWatchEndsIfItCannotWrite(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, output := range []string{"table", "json"} {
		var stderr bytes.Buffer
		code := run(ctx, []string{"--checkpoint-dir", t.TempDir(), "status", "--watch", "--interval", "1ms", "-o", output}, full{}, &stderr)
		if ctx.Err() != nil || code != exitDiffers || stderr.String() != "relink: what it has to say cannot be written: no space left on device\n" {
			t.Errorf("%s: exit status %d, %q, %v", output, code, &stderr, ctx.Err())
		}
	}
}

// --watch shows the node again and again. ^C ends it without a failure.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out := &untilTwice{enough: cancel}
	if code := run(ctx, []string{"--checkpoint-dir", t.TempDir(), "status", "--watch", "--interval", "1ms"}, out, out); code != exitOK {
		t.Errorf("exit status %d: %s", code, &out.Buffer)
	}
	if n := out.shown(); n < 2 {
		t.Errorf("shown %d times:\n%s", n, &out.Buffer)
	}
}

// untilTwice calls enough when the node has been shown twice, as a user who has seen enough types ^C.
type untilTwice struct {
	bytes.Buffer
	enough func()
}

func (w *untilTwice) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.shown() >= 2 {
		w.enough()
	}
	return n, err
}

func (w *untilTwice) shown() int { return strings.Count(w.String(), "nothing is remembered") }

// Package terminal runs relink's programs on a terminal, and types answers.
package terminal

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/binaries"
)

// Command prepares a program on a terminal of so many columns. args are words of a shell, such as "list >file".
func Command(t *testing.T, program, columns string, env []string, args string) *exec.Cmd {
	t.Helper()
	root, err := binaries.Root()
	bin := filepath.Join(root, "bin/test")
	if err == nil {
		err = binaries.Build(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	line := "stty cols " + columns + "; exec " + filepath.Join(bin, program) + " " + args
	cmd := exec.Command("script", "-qec", line, "/dev/null")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "SHELL=/bin/sh"}, env...)
	return cmd
}

// TypeAfter runs a program on a terminal of 80 columns, waits for the question, and types the answer. It returns the text on the terminal
// and the exit status.
func TypeAfter(t *testing.T, program, question, answer, args string) (string, int) {
	t.Helper()
	cmd := Command(t, program, "80", []string{"NO_COLOR=1"}, args)
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer hangs.Stop()
	var all bytes.Buffer
	for buffer := make([]byte, 4096); !strings.Contains(all.String(), question); {
		n, err := shown.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			_ = cmd.Wait()
			t.Fatalf("%s %s asks nothing: %v\n%s", program, args, err, &all)
		}
	}
	if _, err := io.WriteString(keyboard, answer); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(&all, shown) // The read from a terminal always ends with an error.
	_ = cmd.Wait()
	return strings.ReplaceAll(all.String(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

package main

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
)

// Output that cannot be written is a failure.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"check"}, {"version"}, {"version", "-o", "json"}, {"list", "-o", "yaml"}} {
		var stderr bytes.Buffer
		code := run(t.Context(), append(args, "--checkpoint-dir", t.TempDir()), full{}, &stderr)
		if code != cli.Differs || stderr.String() != "relink: what it has to say cannot be written: no space left on device\n" {
			t.Errorf("%v: exit status %d, %q", args, code, &stderr)
		}
	}
}

// full is a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

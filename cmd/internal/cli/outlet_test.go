package cli

import (
	"bytes"
	"testing"

	"github.com/relink-cni/relink/pkg/printable"
)

// Both streams of a terminal clear the line before they write.
func TestAStatusLineIsClearedBeforeAnotherLine(t *testing.T) {
	var b bytes.Buffer
	line := &statusLine{}
	out, errs := &stream{Writer: &b, line: line}, &stream{Writer: &b, line: line}
	line.show(&b, "1 of 3 sandboxes")
	PrintLine(Raw(&printable.Writer{Output: errs}), "relink: %s", "waiting for c1")
	line.show(&b, "2 of 3 sandboxes")
	PrintLine(&printable.Writer{Output: out}, "restored")
	PrintLine(out, "and no more")
	line.show(&b, "2 of 3 sandboxes")
	line.show(&b, "3")
	line.clear()
	line.clear()
	const clear = "\r\x1b[K"
	want := "1 of 3 sandboxes" + clear + "relink: waiting for c1\n2 of 3 sandboxes" + clear + "restored\nand no more\n2 of 3 sandboxes" +
		clear + "3" + clear
	if b.String() != want {
		t.Errorf("%q\nwant\n%q", &b, want)
	}
	if out.writeErr != nil {
		t.Error(out.writeErr)
	}
}

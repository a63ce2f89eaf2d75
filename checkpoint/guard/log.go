package guard

import (
	"fmt"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

func (g *guard) openLog(flags int) (err error) {
	if g.log, err = os.OpenFile(logPath(g.dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND|flags, 0o600); err != nil {
		return fmt.Errorf("guard's log: %w", err)
	}
	g.console = newConsole()
	return nil
}

func (g *guard) close() {
	g.console.close()
	_ = g.log.Close()
}

// logf writes one line, with the time.
func (g *guard) logf(format string, args ...any) {
	g.print(time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...), !g.Quiet)
}

// alertf is logf for a problem: Quiet does not hide it.
func (g *guard) alertf(format string, args ...any) {
	g.print(time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...), true)
}

func (g *guard) print(line string, shown bool) {
	text := []byte(printable.Line(line) + "\n")
	_, _ = g.log.Write(text) // A full disk must not keep the guard from its work.
	if shown {
		g.console.write(g.Err, text)
	}
}

// maxOutput is how many bytes of the command's output the log keeps. The checkpoints are on the same file system, mostly
// a tmpfs.
const maxOutput = 16 << 20

// writeOutput passes on the command's output.
func (g *guard) writeOutput(output []byte) {
	kept := output[:min(len(output), maxOutput-g.loggedBytes)]
	_, _ = g.log.Write(kept)
	g.loggedBytes += len(kept)
	if len(kept) < len(output) && !g.truncated {
		g.truncated = true
		g.logf("the command has written %d MiB: the log does not keep the rest", maxOutput>>20)
	}
	g.console.write(g.Out, output)
}

// notef writes one line, and repeats it in the report.
func (g *guard) notef(format string, args ...any) {
	g.logf(format, args...)
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

// troublef writes what is not back.
func (g *guard) troublef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.alertf("NOT BACK: %s", text)
	g.journal.Troubles = append(g.journal.Troubles, text)
}

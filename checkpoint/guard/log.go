package guard

import (
	"fmt"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

func (g *guard) openLog(how int) (err error) {
	if g.log, err = os.OpenFile(logPath(g.dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND|how, 0o600); err != nil {
		return fmt.Errorf("guard's log: %w", err)
	}
	g.console = newConsole()
	return nil
}

func (g *guard) close() {
	g.console.close()
	_ = g.log.Close()
}

// say writes one line, with the time.
func (g *guard) say(format string, args ...any) {
	g.print(time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...), !g.Quiet)
}

// insist is say for a problem: Quiet does not hide it.
func (g *guard) insist(format string, args ...any) {
	g.print(time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...), true)
}

func (g *guard) print(line string, aloud bool) {
	text := []byte(printable.Line(line) + "\n")
	_, _ = g.log.Write(text) // A full disk must not keep the guard from its work.
	if aloud {
		g.console.write(g.Err, text)
	}
}

// mostOutput is how many bytes of the command's output the log keeps. The checkpoints are on the same file system, mostly
// a tmpfs.
const mostOutput = 16 << 20

// show passes on the command's output.
func (g *guard) show(output []byte) {
	kept := output[:min(len(output), mostOutput-g.kept)]
	_, _ = g.log.Write(kept)
	g.kept += len(kept)
	if len(kept) < len(output) && !g.cut {
		g.cut = true
		g.say("the command has written %d MiB: the log does not keep the rest", mostOutput>>20)
	}
	g.console.write(g.Out, output)
}

// note writes one line, and repeats it in the report.
func (g *guard) note(format string, args ...any) {
	g.say(format, args...)
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

// trouble writes what is not back.
func (g *guard) trouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.insist("NOT BACK: %s", text)
	g.j.Troubles = append(g.j.Troubles, text)
}

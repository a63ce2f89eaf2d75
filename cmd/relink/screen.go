package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/printable"
)

// verbosity is how much a verb says.
type verbosity struct {
	// quiet leaves out everything that is right. verbose folds nothing and adds details.
	quiet, verbose bool
}

func addVerbosity(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolP("quiet", "q", false, "print only what is wrong")
	flags.BoolP("verbose", "v", false, "print more: one line for each attachment, even if many are alike")
}

// screen is where a verb writes for people. pkg/printable makes all text safe, because a pod has chosen many of the
// names in it.
type screen struct {
	verbosity
	// out and err are the two streams.
	out, err io.Writer
	// format is the value of --output, empty for a verb without that flag.
	format string
	// colour says that out shows colours. width is its number of columns, 0 for no limit.
	colour bool
	width  int
}

// screenOf returns the screen of the command.
func screenOf(cmd *cobra.Command) *screen {
	s := &screen{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), format: flagText(cmd, outputFlag)}
	s.quiet, s.verbose = flagText(cmd, "quiet") == "true", flagText(cmd, "verbose") == "true"
	if f := terminal(s.out); f != nil {
		s.colour = wantsColour()
		s.width = widthOf(f)
	}
	return s
}

// flagText is the value of a flag, empty if the verb has no such flag.
func flagText(cmd *cobra.Command, name string) string {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

// wantsColour reports whether the environment allows colours on a terminal.
func wantsColour() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// terminal returns the terminal that w writes to, or nil if w is no terminal.
func terminal(w io.Writer) *os.File {
	if o := streamOf(w); o != nil {
		w = o.writer
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// widthOf returns the number of columns of a terminal. COLUMNS comes first, as in ls(1).
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil {
		return n
	}
	return 0
}

// printf writes one line.
func (s *screen) printf(format string, args ...any) { printLine(s.out, format, args...) }

// printLines writes each text on a line.
func (s *screen) printLines(lines []string) {
	for _, line := range lines {
		s.printf("%s", line)
	}
}

// infoLines is info for several lines.
func (s *screen) infoLines(lines []string) {
	if !s.quiet {
		s.printLines(lines)
	}
}

// fitted returns one line, cut to the width of the terminal. A verbose screen shows the whole line.
func (s *screen) fitted(format string, args ...any) string {
	line := printable.Line(fmt.Sprintf(format, args...))
	if s.verbose {
		return line
	}
	return cut(line, s.width)
}

// printFitted writes one line, cut to the width of the terminal.
func (s *screen) printFitted(format string, args ...any) { s.printf("%s", s.fitted(format, args...)) }

// info writes one line, unless the screen is quiet.
func (s *screen) info(line string) { s.infoLines([]string{line}) }

// warnf writes one line about the command itself.
func (s *screen) warnf(format string, args ...any) { printLine(s.err, "relink: "+format, args...) }

// paint is a colour (ECMA-48, "SGR").
type paint string

const (
	plain  paint = ""
	green  paint = "32"
	yellow paint = "33"
	red    paint = "31"
	faint  paint = "2"
	bold   paint = "1"
)

// apply returns the printable text in the colour.
func (p paint) apply(s *screen, text string) string {
	if p == plain || text == "" || !s.colour {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}

// raw is out without the writer that makes text safe. It is for colours, and for text that is safe already.
func (s *screen) raw() io.Writer { return raw(s.out) }

// raw returns the writer below one that makes text safe.
func raw(w io.Writer) io.Writer {
	if p, ok := w.(*printable.Writer); ok {
		return p.Output
	}
	return w
}

// printHeading writes a line that stands out.
func (s *screen) printHeading(text string) {
	fmt.Fprintln(s.raw(), bold.apply(s, printable.Line(text)))
}

// printLine writes one line.
func printLine(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, printable.Line(fmt.Sprintf(format, args...)))
}

// printLockWait returns a function that prints which lock the command waits for. It writes each line at once, not through the
// printable.Writer, because several goroutines can wait.
func printLockWait(w io.Writer) flock.OnWait {
	return func(line string) { printLine(raw(w), "relink: %s", line) }
}

// printError writes a whole error on one line.
func printError(w io.Writer, err error) {
	printLine(w, "relink: %s", printable.Joined(err))
}

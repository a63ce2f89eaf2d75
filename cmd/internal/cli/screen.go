package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/relink-cni/relink/pkg/printable"
)

// Verbosity is how much a verb says.
type Verbosity struct {
	// Quiet leaves out everything that is right. verbose folds nothing and adds details.
	Quiet, Verbose bool
}

func addVerbosity(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolP("quiet", "q", false, "print only what is wrong")
	flags.BoolP("verbose", "v", false, "print more: one line for each attachment, even if many are alike")
}

// Screen is where a verb writes for people. pkg/printable makes all text safe, because a pod has chosen many of the
// names in it.
type Screen struct {
	Verbosity
	// Out and err are the two streams.
	Out, Err io.Writer
	// Format is the value of --output, empty for a verb without that flag.
	Format string
	// Colour says that out shows colours. width is its number of columns, 0 for no limit.
	Colour bool
	Width  int
	// StateColour returns the colour of a word in a STATE column. It is nil for a screen without such colours.
	StateColour func(state string) Paint
}

// NewScreen returns the screen of the command.
func NewScreen(cmd *cobra.Command) *Screen {
	s := &Screen{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Format: FlagText(cmd, outputFlag)}
	s.Quiet, s.Verbose = FlagText(cmd, "quiet") == "true", FlagText(cmd, "verbose") == "true"
	if f := terminal(s.Out); f != nil {
		s.Colour = wantsColour()
		s.Width = widthOf(f)
	}
	return s
}

// FlagText is the value of a flag, empty if the verb has no such flag.
func FlagText(cmd *cobra.Command, name string) string {
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
	if o := StreamOf(w); o != nil {
		w = o.Writer
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

// Printf writes one line.
func (s *Screen) Printf(format string, args ...any) { PrintLine(s.Out, format, args...) }

// PrintLines writes each text on a line.
func (s *Screen) PrintLines(lines []string) {
	for _, line := range lines {
		s.Printf("%s", line)
	}
}

// InfoLines is info for several lines.
func (s *Screen) InfoLines(lines []string) {
	if !s.Quiet {
		s.PrintLines(lines)
	}
}

// Fitted returns one line, cut to the width of the terminal. A verbose screen shows the whole line.
func (s *Screen) Fitted(format string, args ...any) string {
	line := printable.Line(fmt.Sprintf(format, args...))
	if s.Verbose {
		return line
	}
	return cut(line, s.Width)
}

// PrintFitted writes one line, cut to the width of the terminal.
func (s *Screen) PrintFitted(format string, args ...any) { s.Printf("%s", s.Fitted(format, args...)) }

// Info writes one line, unless the screen is quiet.
func (s *Screen) Info(line string) { s.InfoLines([]string{line}) }

// Warnf writes one line about the command itself.
func (s *Screen) Warnf(format string, args ...any) { PrintLine(s.Err, "relink: "+format, args...) }

// Paint is a colour (ECMA-48, "SGR").
type Paint string

// The colours of text.
const (
	plain  Paint = ""
	Green  Paint = "32"
	Yellow Paint = "33"
	Red    Paint = "31"
	Faint  Paint = "2"
	bold   Paint = "1"
)

// apply returns the printable text in the colour.
func (p Paint) apply(s *Screen, text string) string {
	if p == plain || text == "" || !s.Colour {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}

// cellColour is the colour of a cell in the column of that name.
func (s *Screen) cellColour(name, text string) Paint {
	if name != stateColumn || s.StateColour == nil {
		return plain
	}
	return s.StateColour(text)
}

// Raw is out without the writer that makes text safe. It is for colours, and for text that is safe already.
func (s *Screen) Raw() io.Writer { return Raw(s.Out) }

// Raw returns the writer below one that makes text safe.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*printable.Writer); ok {
		return p.Output
	}
	return w
}

// PrintHeading writes a line that stands out.
func (s *Screen) PrintHeading(text string) {
	fmt.Fprintln(s.Raw(), bold.apply(s, printable.Line(text)))
}

// PrintLine writes one line.
func PrintLine(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, printable.Line(fmt.Sprintf(format, args...)))
}

// PrintError writes a whole error on one line.
func PrintError(w io.Writer, err error) {
	PrintLine(w, "relink: %s", printable.Joined(err))
}

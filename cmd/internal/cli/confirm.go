package cli

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Confirm shows in full what the verb is about to do, and asks. Both go to standard error, because standard output can be a file.
// participle says what it does to things. It returns ErrDiffers if the answer is none of those accepted, or if the context ends first.
func (s *Screen) Confirm(cmd *cobra.Command, participle string, show func(*Screen), question string, accepted ...string) error {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || terminal(s.Err) == nil {
		return fmt.Errorf("%s needs --yes where nobody can be asked: standard input and standard error must be a terminal. --dry-run prints what would be %s",
			cmd.CommandPath(), participle)
	}
	asking := &Screen{Verbosity: Verbosity{Verbose: true}, Out: s.Err, Err: s.Err, Colour: wantsColour(), StateColour: s.StateColour}
	show(asking)
	fmt.Fprint(asking.Out, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(f).ReadString('\n') // Without its end a line is no answer. Nothing can interrupt this read.
		answer <- line
	}()
	var line string
	select {
	case line = <-answer:
	case <-cmd.Context().Done():
	}
	text, typed := strings.CutSuffix(line, "\n")
	if !typed {
		fmt.Fprintln(asking.Out)
	} else if cmd.Context().Err() == nil && slices.Contains(accepted, strings.TrimSpace(text)) {
		return nil
	}
	asking.Printf("nothing is %s", participle)
	return ErrDiffers
}

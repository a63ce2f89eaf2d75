package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirm shows in full what the verb is about to do, and asks. Both go to standard error, because standard output can be a file.
// participle says what it does to things. It returns errDiffers if the answer is none of those accepted, or if the context ends first.
func (s *screen) confirm(cmd *cobra.Command, participle string, show func(*screen), question string, accepted ...string) error {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || terminal(s.err) == nil {
		return fmt.Errorf("%s needs --yes where nobody can be asked: standard input and standard error must be a terminal. --dry-run prints what would be %s",
			cmd.CommandPath(), participle)
	}
	asking := &screen{verbosity: verbosity{verbose: true}, out: s.err, err: s.err, colour: wantsColour()}
	show(asking)
	fmt.Fprint(asking.out, question)
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
		fmt.Fprintln(asking.out)
	} else if cmd.Context().Err() == nil && slices.Contains(accepted, strings.TrimSpace(text)) {
		return nil
	}
	asking.printf("nothing is %s", participle)
	return errDiffers
}

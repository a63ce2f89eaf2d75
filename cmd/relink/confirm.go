package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	asking := s.dialogue()
	show(asking)
	fmt.Fprint(asking.out, question)
	answer, err := readLine(cmd.Context(), f)
	if err != nil {
		fmt.Fprintln(asking.out) // The user typed no newline.
	} else if slices.Contains(accepted, strings.TrimSpace(answer)) {
		return nil
	}
	asking.printf("nothing is %s", participle)
	if err == nil || errors.Is(err, io.EOF) || cmd.Context().Err() != nil {
		return errDiffers
	}
	return err
}

// readLine returns the next line, or the context's error once the context has ended. A read that has begun then goes on
// until the program ends, because nothing can interrupt a read from a terminal.
func readLine(ctx context.Context, input io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(input).ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
	case r := <-read:
		if ctx.Err() == nil {
			return r.line, r.err
		}
	}
	return "", ctx.Err()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/printable"
)

// Exit codes.
const (
	OK = iota
	// Differs: something is not as recorded, and relink has said what.
	Differs
	// Usage: relink could not look, because of the command line or the environment.
	Usage
)

// ErrDiffers ends a command that found a difference and has reported it.
var ErrDiffers = errors.New("not everything is as recorded")

// ExitStatus ends the command with that status, without a message.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Main runs a program until it ends, and ends the process with its exit code.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal lets the work end in order, the second ends it at once.
		<-ctx.Done()
		stop()
	}()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run executes the command line and returns the exit code. codes has what an error of a verb comes to, for verbs with exit codes of their own.
func Run(ctx context.Context, root *cobra.Command, codes map[string]func(error) int, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	line := &statusLine{}
	defer line.clear()
	out, errs := &stream{Writer: stdout, line: line}, &stream{Writer: stderr, line: line}
	root.SetOut(&printable.Writer{Output: out})
	root.SetErr(&printable.Writer{Output: errs})
	if len(args) == 0 {
		root.SetArgs([]string{"help"})
	}
	verb, err := root.ExecuteContextC(ctx)
	var status ExitStatus
	switch codeOf := codes[verb.Name()]; {
	case errors.As(err, &status):
		return int(status)
	case codeOf != nil && err != nil:
		PrintError(errs, err)
		return codeOf(err)
	case out.writeErr != nil:
		PrintError(errs, fmt.Errorf("what it has to say cannot be written: %w", out.writeErr))
		return Differs
	case err == nil:
		return OK
	case errors.Is(err, ErrDiffers):
		return Differs
	}
	PrintError(errs, err)
	return Usage
}

// CompleteRoot adds what every program has. The root has all its verbs.
func CompleteRoot(root *cobra.Command) {
	root.SilenceUsage, root.SilenceErrors = true, true
	addVerbosity(root)
	RequireVerb(root)
	strictDefaults(root)
	root.SetFlagErrorFunc(flagError)
}

// AddGroup adds verbs below a title of their own in the help.
func AddGroup(root *cobra.Command, title string, verbs ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, verb := range verbs {
		verb.GroupID = title
		root.AddCommand(verb)
	}
}

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Takes is for a verb that takes so many arguments. A limit below 0 stands for any number.
func Takes(minimum, limit int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
		switch {
		case len(args) < minimum:
			return fmt.Errorf("an argument is missing: %s", usage)
		case limit < 0 || len(args) <= limit:
			return checkFlags(cmd)
		case usage == cmd.CommandPath():
			return fmt.Errorf("unexpected argument %q: %s takes none", args[0], usage)
		}
		return fmt.Errorf("unexpected argument %q: %s", args[len(args)-1], usage)
	}
}

// selectionFlags are the flags that narrow down a verb's objects. An empty value is a mistake, such as an unset variable in a
// script. It would select everything.
var selectionFlags = []string{"namespace", "network", "parent"}

// exclusiveFlags exclude each other.
var exclusiveFlags = [][2]string{{"quiet", "verbose"}, {"all-namespaces", "namespace"}, {"follow", "resume"}, {"ifname", "nobody"}, {"namespace", "nobody"}}

// checkFlags reports a limit that is given but empty, and flags that exclude each other.
func checkFlags(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for _, name := range selectionFlags {
		if value := FlagText(cmd, name); flags.Changed(name) && (value == "" || value == "[]") {
			return fmt.Errorf("invalid --%s \"\": it must not be empty; leave it out for all", name)
		}
	}
	for _, pair := range exclusiveFlags {
		if flags.Changed(pair[0]) && flags.Changed(pair[1]) {
			return fmt.Errorf("--%s and --%s cannot be given together: leave one out", pair[0], pair[1])
		}
	}
	return nil
}

// destructiveVerbs are the verbs that free, delete or forget something. No misspelt verb leads to one of them.
var destructiveVerbs = []string{"fence", "forget", "gc", "release", "remove", "reset-clock", "uninstall"}

// Suggestions are the verbs that the word may stand for.
func Suggestions(cmd *cobra.Command, word string) []string {
	return slices.DeleteFunc(cmd.SuggestionsFor(word), func(verb string) bool { return slices.Contains(destructiveVerbs, verb) })
}

// RequireVerb is for a command that needs a verb to do anything.
func RequireVerb(cmd *cobra.Command) {
	cmd.Args, cmd.SuggestionsMinimumDistance = Takes(0, -1), 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs a verb: %s", cmd.CommandPath(), strings.Join(verbsOf(cmd), ", "))
		}
		if near := Suggestions(cmd, args[0]); len(near) > 0 {
			return fmt.Errorf("unknown verb %q: did you mean %s?", args[0], strings.Join(near, " or "))
		}
		return fmt.Errorf("unknown verb %q: %s --help lists the verbs", args[0], cmd.CommandPath())
	}
}

// strictDefaults makes cobra's own verbs refuse what they do not know. They would print a help and end with 0.
func strictDefaults(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			RequireVerb(cmd)
			for _, shell := range cmd.Commands() {
				shell.Args = Takes(0, 0)
			}
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("unknown verb %q: %s --help lists the verbs", strings.Join(args, " "), root.CommandPath())
				}
				return nil
			}
		}
	}
}

// verbsOf returns the names of the verbs in the help.
func verbsOf(cmd *cobra.Command) []string {
	var names []string
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return names
}

// flagError explains what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	var lone *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		return fmt.Errorf("unknown flag %s: %s --help lists the flags", strings.Repeat("-", min(2, len(name)))+name, cmd.CommandPath())
	case errors.As(err, &wrong):
		return fmt.Errorf("invalid --%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), valueHint(wrong))
	case errors.As(err, &lone):
		_, usage := pflag.UnquoteUsage(lone.GetFlag())
		return fmt.Errorf("--%s needs a value: %s", lone.GetFlag().Name, usage)
	}
	return err
}

// valueHint says which values the flag takes. The errors of the package strconv are written for programmers.
func valueHint(wrong *pflag.InvalidValueError) string {
	message := wrong.Unwrap().Error()
	switch {
	case !strings.HasPrefix(message, "strconv."):
		return message
	case wrong.GetFlag().Value.Type() == "bool":
		return "must be true or false"
	}
	return "must be a whole number"
}

// durationFlag is the value of a flag that gives a duration.
type durationFlag struct {
	*time.Duration
	// positive says that 0 is no value for it.
	positive bool
}

// AddDuration adds a flag that gives a duration. It is the default until then.
func AddDuration(cmd *cobra.Command, d *time.Duration, positive bool, name, usage string) {
	cmd.Flags().Var(durationFlag{d, positive}, name, usage)
}

func (f durationFlag) Type() string { return "duration" }

func (f durationFlag) String() string {
	if f.Duration == nil || *f.Duration == 0 {
		return "" // The help shows no default.
	}
	return f.Duration.String()
}

// Set takes the flag's value.
func (f durationFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return errors.New("must be a time such as 500ms, 30s or 2h")
	case f.positive && d <= 0:
		return errors.New("must be more than 0")
	case d < 0:
		return errors.New("must not be negative")
	}
	*f.Duration = d
	return nil
}

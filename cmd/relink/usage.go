package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainErrors makes the command and its verbs explain a wrong command line in plain words.
func explainErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(flagError)
	if takes := cmd.Args; takes != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := takes(cmd, args); err != nil {
				return argumentError(cmd, args, err)
			}
			return errors.Join(exclusiveError(cmd.ValidateFlagGroups()), checkEmptySelection(cmd))
		}
	}
	for _, verb := range cmd.Commands() {
		explainErrors(verb)
	}
}

// selectionFlags are the flags that narrow down a verb's objects. An empty value is a mistake, such as an unset variable in a
// script. It would select everything.
var selectionFlags = []string{"namespace", "network", "parent"}

// checkEmptySelection reports a limit that is given but empty.
func checkEmptySelection(cmd *cobra.Command) error {
	for _, name := range selectionFlags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fmt.Errorf("invalid --%s \"\": it must not be empty; leave it out for all", name)
		}
	}
	return nil
}

// argCountError matches cobra's errors about too many or too few arguments. It finds how many there can be, unless any number or none can.
var argCountError = regexp.MustCompile(`^(?:requires |unknown command |accepts .*?(\d+) arg)`)

// destructiveVerbs are the verbs that free, delete or forget something. No misspelt verb leads to one of them.
var destructiveVerbs = []string{"fence", "forget", "gc", "release", "remove", "reset-clock", "uninstall"}

// suggestions are the verbs that the word may stand for.
func suggestions(cmd *cobra.Command, word string) []string {
	return slices.DeleteFunc(cmd.SuggestionsFor(word), func(verb string) bool { return slices.Contains(destructiveVerbs, verb) })
}

// requireVerb is for a command that needs a verb to do anything.
func requireVerb(cmd *cobra.Command) {
	cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs a verb: %s", cmd.CommandPath(), strings.Join(verbsOf(cmd), ", "))
		}
		if near := suggestions(cmd, args[0]); len(near) > 0 {
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
			requireVerb(cmd)
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

// valueHint says which values the flag takes. The errors of the packages time and strconv are written for programmers.
func valueHint(wrong *pflag.InvalidValueError) string {
	message := wrong.Unwrap().Error()
	if !strings.HasPrefix(message, "time: ") && !strings.HasPrefix(message, "strconv.") {
		return message
	}
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		return "must be a time such as 500ms, 30s or 2h"
	case "bool":
		return "must be true or false"
	}
	return "must be a whole number"
}

// argumentError explains that there are too many or too few arguments.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	count := argCountError.FindStringSubmatch(err.Error())
	if count == nil {
		return err
	}
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	limit, _ := strconv.Atoi(count[1])
	switch {
	case strings.HasPrefix(count[0], "requires") || len(args) < limit:
		return fmt.Errorf("an argument is missing: %s", usage)
	case usage == cmd.CommandPath():
		return fmt.Errorf("unexpected argument %q: %s takes none", args[0], usage)
	}
	return fmt.Errorf("unexpected argument %q: %s", args[len(args)-1], usage)
}

// setFlags matches cobra's error about flags that exclude each other.
var setFlags = regexp.MustCompile(`\[([^\]]*)\] were all set$`)

// exclusiveError says which flags exclude each other.
func exclusiveError(err error) error {
	if err == nil {
		return nil
	}
	set := setFlags.FindStringSubmatch(err.Error())
	if set == nil {
		return err
	}
	flags := strings.Fields(set[1])
	return fmt.Errorf("--%s cannot be given together: leave one out", strings.Join(flags, " and --"))
}

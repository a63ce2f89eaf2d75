package docs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// help is what a verb says of itself.
type help struct {
	// usage is the line of usage, without [flags].
	usage string
	verbs []string
	flags []flag
	// formats are the values of --output.
	formats []string
}

// flag is a flag of a verb.
type flag struct {
	// names are its short name, if it has one, and its long one.
	names []string
	// takes says that it takes a value, global that it is a flag of a command above the verb.
	takes, global bool
}

// flag returns the flag of that name.
func (h help) flag(name string) (flag, bool) {
	i := slices.IndexFunc(h.flags, func(f flag) bool { return slices.Contains(f.names, name) })
	if i < 0 {
		return flag{}, false
	}
	return h.flags[i], true
}

// arguments says that the verb takes arguments.
func (h help) arguments() bool { return helpArguments.MatchString(h.usage) }

var (
	helps         = map[string]help{}
	helpFlag      = regexp.MustCompile(`^ +(?:(-\w), |    )(--[\w-]+)( \w+)?`)
	helpVerb      = regexp.MustCompile(`^  ([a-z][\w-]*) +\S`)
	helpArguments = regexp.MustCompile(`^(?:kubectl )?relink[a-z -]* [A-Z<({\[]`)
	helpFormats   = regexp.MustCompile(`output format: ([a-z, ]+) \(`)
)

// helpOf asks the real command.
func helpOf(verb string) help {
	if h, ok := helps[verb]; ok {
		return h
	}
	words := append(strings.Fields(verb), "--help")
	program, args := words[0], words[1:]
	if isPlugin(words) {
		program, args = "kubectl-relink", words[2:]
	}
	cmd := exec.Command(filepath.Join(bin, program), args...)
	out, err := cmd.Output()
	if err != nil {
		panic(fmt.Sprintf("%s --help: %v", verb, err))
	}
	_, text, _ := strings.Cut(string(out), "\nUsage:\n")
	h := parseHelp(text)
	helps[verb] = h
	return h
}

// parseHelp reads what a help text has from its usage on.
func parseHelp(text string) help {
	h := help{}
	part := "Usage:"
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			part = line
			continue
		}
		switch {
		case part == "Examples:":
		case part == "Usage:":
			if line = strings.TrimSuffix(strings.TrimSpace(line), " [flags]"); h.usage == "" {
				h.usage = line
			}
		case strings.HasSuffix(part, "Flags:"):
			if m := helpFlag.FindStringSubmatch(line); m != nil {
				names := slices.DeleteFunc([]string{m[1], m[2]}, func(name string) bool { return name == "" })
				h.flags = append(h.flags, flag{names: names, takes: m[3] != "", global: part == "Global Flags:"})
			}
			if m := helpFormats.FindStringSubmatch(line); m != nil {
				h.formats = strings.Split(strings.Replace(m[1], " or ", ", ", 1), ", ")
			}
		default: // The verbs are in groups, each with a title.
			if m := helpVerb.FindStringSubmatch(line); m != nil {
				h.verbs = append(h.verbs, m[1])
			}
		}
	}
	return h
}

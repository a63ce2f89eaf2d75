package docs

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// TestCommandLines says that the real command knows each relink command line of every document.
func TestCommandLines(t *testing.T) {
	for _, doc := range documents(t) {
		for _, c := range commandLines(t, doc) {
			if problem := unknownTo(c.words); problem != "" {
				t.Errorf("%s:%d: %q: %s", doc.path, c.line, strings.Join(c.words, " "), problem)
			}
		}
	}
}

// TestUnknownTo shows that a misspelt verb, flag or argument is found.
func TestUnknownTo(t *testing.T) {
	for line, want := range map[string]string{
		"relink check":                                 "",
		"relink restore --dry-run --wait 5s":           "",
		"relink restore --parent old=new":              "",
		"relink guard --limit 2m -- modprobe -r e1000": "",
		"relink guard --limt 2m -- true":               "no such flag: --limt",
		"relink status -- true":                        "no such flag: --",
		"relink ipam list --state reserved -n shop":    "",
		"relink ipam show 10.3.0.2":                    "",
		"relink --checkpoint-dir /x list -o json":      "",
		"relink resotre":                               "no such verb: resotre",
		"kubectl relink fence node3 --yes":             "",
		"kubectl relink fense node3":                   "no such verb: fense",
		"kubectl relink status -n x --wide":            "no such flag: --wide",
		"relink ipam lists":                            "no such verb: lists",
		"relink restore --dryrun":                      "no such flag: --dryrun",
		"relink check -z":                              "no such flag: -z",
		"relink ipam usage 10.3.0.2":                   "it takes no argument: 10.3.0.2",
		"relink gc --dry-run=true --data-dir /x":       "",
		"relink status --data-dir /x now":              "it takes no argument: now",
	} {
		if got := unknownTo(strings.Fields(line)); got != want {
			t.Errorf("%q: %q, not %q", line, got, want)
		}
	}
}

// commandLine is a call of relink.
type commandLine struct {
	words []string
	line  int
}

// commandLines returns the calls of relink in a document's blocks and in its sentences.
func commandLines(t *testing.T, doc document) []commandLine {
	t.Helper()
	var all []commandLine
	for _, b := range doc.blocks {
		for _, words := range calls(t, b.doc, b.line, commandsOf(b)) {
			if words[0] == "relink" || isPlugin(words) {
				all = append(all, commandLine{words, b.line})
			}
		}
	}
	for _, code := range doc.code {
		if strings.HasPrefix(code.text, "relink ") || strings.HasPrefix(code.text, plugin+" ") {
			for _, words := range calls(t, doc.path, code.line, code.text) {
				all = append(all, commandLine{words, code.line})
			}
		}
	}
	return all
}

// commandsOf returns the commands of a block without what they print. What is no shell has none.
func commandsOf(b block) string {
	if b.language == "console" {
		var commands []string
		for _, step := range steps(b) {
			commands = append(commands, step.command)
		}
		return strings.Join(commands, "\n")
	}
	e, _ := find(b)
	if b.language == "sh" || b.language == "" && e.check == parts && !strings.HasPrefix(b.text, "func ") {
		return b.text
	}
	return ""
}

// calls parses a shell script and returns the words of each command in it, and of each in a script that it gives to sh -c.
func calls(t *testing.T, doc string, line int, script string) [][]string {
	t.Helper()
	parsed, err := syntax.NewParser().Parse(strings.NewReader(script), doc)
	if err != nil {
		t.Errorf("%s:%d: %v", doc, line, err)
		return nil
	}
	var all [][]string
	syntax.Walk(parsed, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		var words []string
		for _, word := range call.Args {
			words = append(words, literal(word))
		}
		all = append(all, words)
		if len(words) > 2 && words[len(words)-3] == "sh" && words[len(words)-2] == "-c" {
			all = append(all, calls(t, doc, line, words[len(words)-1])...)
		}
		return true
	})
	return all
}

// literal is a word as it is written, without its quotes.
func literal(word *syntax.Word) string {
	if len(word.Parts) == 1 {
		if quoted, ok := word.Parts[0].(*syntax.SglQuoted); ok {
			return quoted.Value
		}
	}
	var text strings.Builder
	_ = syntax.NewPrinter().Print(&text, word)
	return strings.Trim(text.String(), `"`)
}

// plugin is the command that kubectl has from relink.
const plugin = "kubectl relink"

// isPlugin says whether a command line calls the plugin.
func isPlugin(words []string) bool {
	return len(words) > 1 && words[0]+" "+words[1] == plugin
}

// unknownTo says what the real command does not know of a command line, nothing if it knows all.
func unknownTo(words []string) string {
	verb, first := "relink", 1
	if isPlugin(words) {
		verb, first = plugin, 2
	}
	help := helpOf(verb)
	arguments := 0
	for i := first; i < len(words); i++ {
		word := words[i]
		switch name, _, given := strings.Cut(word, "="); {
		case word == "--" && help.arguments():
			return "" // What follows is a command of its own.
		case strings.HasPrefix(word, "-"):
			f, ok := help.flag(name)
			if !ok {
				return "no such flag: " + name
			}
			if f.takes && !given {
				i++
			}
		case len(help.verbs) > 0 && !slices.Contains(help.verbs, word):
			return "no such verb: " + word
		case len(help.verbs) > 0:
			verb += " " + word
			help = helpOf(verb)
		case arguments == 0 && !help.arguments():
			return "it takes no argument: " + word
		default:
			arguments++
		}
	}
	return ""
}

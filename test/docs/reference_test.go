package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// references are the documents that have a section for each verb of a command.
var references = map[string]string{"relink": "docs/commands.md", plugin: "docs/kubectl.md"}

// ofAll is the section of the reference that has the flags of every verb.
const ofAll = "Flags of every verb"

// TestReference says that the reference has a section for each verb that the real command has and for no other, and that each
// section agrees with the verb's --help.
func TestReference(t *testing.T) {
	for command, atLeast := range map[string]int{"relink": 15, plugin: 6} {
		compareReference(t, command, atLeast)
	}
}

// compareReference compares the document of a command, which has so many verbs at least.
func compareReference(t *testing.T, command string, atLeast int) {
	reference := references[command]
	text, err := os.ReadFile(filepath.Join(root, reference))
	if err != nil {
		t.Fatal(err)
	}
	sections := sectionsOf(string(text))
	verbs := allVerbs(command)
	if len(verbs) < atLeast {
		t.Fatalf("--help shows only the verbs %q", verbs)
	}
	for _, verb := range append(verbs, command) {
		heading := verb
		if verb == command {
			heading = ofAll
		}
		section, ok := sections[heading]
		if !ok {
			t.Errorf("%s has no section %q", reference, heading)
		}
		for _, problem := range disagreements(section, helpOf(verb)) {
			t.Errorf("%s, section %q: %s", reference, heading, problem)
		}
	}
	for heading := range sections {
		if heading != ofAll && !slices.Contains(verbs, heading) {
			t.Errorf("%s has a section %q, and the command has no such verb", reference, heading)
		}
	}
}

// TestDisagreements shows that what a section lacks, and what it has too much, is found.
func TestDisagreements(t *testing.T) {
	h := parseHelp("  relink pat DIR [flags]\n\nFlags:\n  -h, --help            help\n  -n, --soft name       so\n" +
		"  -o, --output format   output format: table, wide or json (default table)\n\nGlobal Flags:\n  -q, --quiet   say less\n")
	for _, c := range []struct {
		section string
		want    []string
	}{
		{"```usage\nrelink pat DIR\n```\n\nWith `--quiet` less.\n\n| flag | |\n|---|---|\n| `-n NAME` | `x` |\n| `-o FORMAT` | `table`, `wide` or `json`. `wide` has all |\n", nil},
		{"```usage\nrelink pat\n```\n\n| `--soft NAME`, `--hard` | so |\n| `-o FORMAT` | `table` |\n| `-q` | less |\n", []string{
			`the usage is "relink pat", not "relink pat DIR"`, "the verb has no flag --hard", "-q is not of this verb alone",
			`the formats are ["table"], not ["table" "wide" "json"]`,
		}},
		{"A sentence about `--hard` and `-o json`.\n", []string{
			`the usage is "", not "relink pat DIR"`, "the verb has no flag --hard", "the table lacks --soft", "the table lacks --output",
			`the formats are [], not ["table" "wide" "json"]`,
		}},
	} {
		if got := disagreements(c.section, h); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, not %q", c.section, got, c.want)
		}
	}
}

// TestSectionsOf shows where the section of a verb ends.
func TestSectionsOf(t *testing.T) {
	got := sectionsOf("# relink\n## Names\nno\n## relink a\none\n### Cases\ntwo\n```\n## relink x\n```\n### relink a b\nthree\n## Other\nno\n")
	want := map[string]string{"relink a": "one\n### Cases\ntwo\n```\n## relink x\n```\n", "relink a b": "three\n"}
	if !maps.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// allVerbs returns all verbs below a command. The shells are not verbs of relink's own, and help is the library's.
func allVerbs(command string) []string {
	var all []string
	for _, verb := range helpOf(command).verbs {
		verb = command + " " + verb
		if !strings.HasSuffix(verb, " help") {
			all = append(all, verb)
		}
		if verb != "relink completion" {
			all = append(all, allVerbs(verb)...)
		}
	}
	return all
}

var verbHeading = regexp.MustCompile(`^(##+) (.*)\n`)

// sectionsOf returns the text below the heading of each verb, up to the next heading of its level or that of another verb.
func sectionsOf(text string) map[string]string {
	sections := map[string]string{}
	name, level, fenced := "", 0, false
	for line := range strings.Lines(text) {
		fenced = fenced != strings.HasPrefix(line, "```")
		m := verbHeading.FindStringSubmatch(line)
		switch isHeading := m != nil && !fenced; {
		case isHeading && (strings.HasPrefix(m[2], "relink ") || strings.HasPrefix(m[2], plugin+" ") || m[2] == ofAll):
			name, level = m[2], len(m[1])
		case isHeading && len(m[1]) <= level:
			name, level = "", 0
		case name != "":
			sections[name] += line
		}
	}
	return sections
}

var (
	shownUsage  = regexp.MustCompile("(?m)^```usage\n(.*)\n```")
	shownRow    = regexp.MustCompile("(?m)^\\| (`-[^|]*) \\| (.*) \\|$")
	shownFlag   = regexp.MustCompile("`(--?[a-zA-Z][\\w-]*)[^`]*`")
	shownFormat = regexp.MustCompile("^`(\\w+)`(?:, `(\\w+)`)*(?: or `(\\w+)`)?")
	formatName  = regexp.MustCompile(`\w+`)
)

// disagreements says in what a section is not as the verb's help: the line of usage, the flags in its sentences and its table, the
// formats.
func disagreements(section string, h help) []string {
	var all []string
	m := shownUsage.FindStringSubmatch(section)
	if usage := strings.Join(m[min(1, len(m)):], ""); len(h.verbs) == 0 && usage != h.usage {
		all = append(all, fmt.Sprintf("the usage is %q, not %q", usage, h.usage))
	}
	for _, m := range shownFlag.FindAllStringSubmatch(section, -1) {
		if _, ok := h.flag(m[1]); !ok {
			all = append(all, "the verb has no flag "+m[1])
		}
	}
	listed, formats := tableOf(section)
	for _, name := range listed {
		if f, ok := h.flag(name); ok && f.global {
			all = append(all, name+" is not of this verb alone")
		}
	}
	for _, f := range h.flags {
		if shown := slices.ContainsFunc(f.names, func(name string) bool { return slices.Contains(listed, name) }); !f.global && !shown && !slices.Contains(f.names, "--help") {
			all = append(all, "the table lacks "+f.names[len(f.names)-1])
		}
	}
	if !slices.Equal(formats, h.formats) {
		all = append(all, fmt.Sprintf("the formats are %q, not %q", formats, h.formats))
	}
	return all
}

// tableOf returns the flags that the section's table has, and the formats in the row of --output.
func tableOf(section string) (flags, formats []string) {
	for _, row := range shownRow.FindAllStringSubmatch(section, -1) {
		for _, m := range shownFlag.FindAllStringSubmatch(row[1], -1) {
			if flags = append(flags, m[1]); m[1] == "-o" {
				formats = slices.DeleteFunc(formatName.FindAllString(shownFormat.FindString(row[2]), -1), func(w string) bool { return w == "or" })
			}
		}
	}
	return flags, formats
}

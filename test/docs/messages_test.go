package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMessages says that the messages that documents quote are those of the programs, as far as they do not name things. Messages are
// quoted in sentences, and in the last column of sample tables.
func TestMessages(t *testing.T) {
	said := literals(t)
	checked := 0
	for _, doc := range documents(t) {
		quotes := slices.DeleteFunc(slices.Clone(doc.code), func(code span) bool { return !isMessage(code.text) })
		for _, b := range doc.blocks {
			if e, _ := find(b); e.check == table {
				quotes = append(quotes, lastCells(b)...)
			}
		}
		for _, quote := range quotes {
			for _, part := range fixedParts(quote.text) {
				checked++
				if !strings.Contains(said, part) {
					t.Errorf("%s:%d: no program says %q, of %q", doc.path, quote.line, part, quote.text)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d parts of messages were found", checked)
	}
}

// TestFixedParts shows what is taken for a message, and what of it must be in a program.
func TestFixedParts(t *testing.T) {
	for text, want := range map[string][]string{
		"eth0 was renamed: it is there as net1-nic":                       {"it is there as"},
		"the recorded eth0 (...) could be what is now eth0 (...)":         {"could be what is now"},
		`invalid key "vlna": no such key of relink-macvlan; did you mean`: {"no such key of", "did you mean"},
		"no mount and no process (inode 4:4026532301); next in turn":      {"no mount and no process", "next in turn"},
	} {
		if got := fixedParts(text); !isMessage(text) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %q, not %q", text, isMessage(text), got, want)
		}
	}
	for _, text := range []string{"relink check --parent bond4", "ip route del ...", `"mtu": 1400, "vlan": 3`, "exec ip -d link", "to repair"} {
		if isMessage(text) {
			t.Errorf("%q is taken for a message", text)
		}
	}
}

var (
	notMessage = regexp.MustCompile(`^(relink|ip|iptables|nsenter|exec|make|go|kubectl|systemctl|journalctl|pgrep|nmcli) |^["{\[/]`)
	// naming is what differs from message to message: names, numbers, and what is left out.
	naming = regexp.MustCompile(`\(?\.\.\.\)?|"[^"]*"|\b(eth|lan|net|bond)\d[\w.-]*|\brelink-\w+|\bshop/\S+|\S*\d\S*|/\S+|[:;()]+( |$)|(^| )\(\w+`)
)

// isMessage says that code in a sentence is what a program says.
func isMessage(text string) bool {
	return len(strings.Fields(text)) >= 4 && !notMessage.MatchString(text)
}

// fixedParts are the parts of a message between the names in it, if they have three words or more.
func fixedParts(text string) []string {
	var parts []string
	for _, part := range naming.Split(text, -1) {
		if part = strings.Trim(part, " ,;:()"); len(strings.Fields(part)) >= 3 {
			parts = append(parts, part)
		}
	}
	return parts
}

// lastCells are the cells of the last column of a sample table.
func lastCells(b block) []span {
	header := strings.Split(b.text, "\n")[0]
	at := strings.LastIndex(header, "  ") + 2
	var cells []span
	for i, line := range strings.Split(b.text, "\n")[1:] {
		if len(line) > at && line[at-1] == ' ' && isMessage(line[at:]) {
			cells = append(cells, span{line[at:], b.line + i + 1})
		}
	}
	return cells
}

// literals returns the strings of all programs, those that a plus joins as one.
func literals(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"checkpoint", "cmd", "pkg", "plugins"} {
		err := fs.WalkDir(os.DirFS(root), dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
			if err == nil {
				ast.Inspect(file, func(node ast.Node) bool {
					text, ok := joined(node)
					all.WriteString(text + "\n")
					return !ok
				})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// joined is the text of a string, or of several that are added. What is no string in between is left out.
func joined(node ast.Node) (text string, ok bool) {
	switch n := node.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil && n.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := joined(n.X)
		right, isRight := joined(n.Y)
		return left + right, n.Op == token.ADD && isLeft && isRight
	}
	return "", false
}

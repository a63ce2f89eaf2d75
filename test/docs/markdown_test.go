package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// root is the repository's root, seen from this package.
const root = "../.."

// document is what the tests need of a Markdown file.
type document struct {
	path     string // From the root.
	headings []heading
	blocks   []block
	code     []span // Code in a sentence or in a table's cell.
	links    []span // Where links and pictures lead to.
}

type heading struct {
	level int
	text  string
}

// block is a code block, fenced or indented.
type block struct {
	doc      string
	line     int
	language string // Empty for an indented one.
	text     string
}

// first is the block's first line, by which the table names it.
func (b block) first() string {
	line, _, _ := strings.Cut(strings.TrimLeft(b.text, "\n"), "\n")
	return strings.TrimSpace(line)
}

type span struct {
	text string
	line int
}

// documents reads all documents.
func documents(t *testing.T) []document {
	t.Helper()
	paths := []string{"README.md", "README.zh.md", "CONTRIBUTING.md", "test/vm/README.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []document
	for _, path := range paths {
		all = append(all, read(t, path))
	}
	return all
}

func read(t *testing.T, path string) document {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return parse(path, source)
}

func parse(path string, source []byte) document {
	doc := document{path: path}
	tree := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	line := func(offset int) int { return 1 + strings.Count(string(source[:offset]), "\n") }
	at := 1 // The line of the last block that has lines: what is within a block only has the block's.
	_ = ast.Walk(tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if node.Type() == ast.TypeBlock && node.Lines().Len() > 0 {
			at = line(node.Lines().At(0).Start)
		}
		switch n := node.(type) {
		case *ast.FencedCodeBlock:
			doc.blocks = append(doc.blocks, block{path, at, string(n.Language(source)), string(n.Lines().Value(source))})
		case *ast.CodeBlock:
			doc.blocks = append(doc.blocks, block{path, at, "", string(n.Lines().Value(source))})
		case *ast.Heading:
			doc.headings = append(doc.headings, heading{n.Level, plain(n, source)})
		case *ast.CodeSpan:
			doc.code = append(doc.code, span{plain(n, source), at})
		case *ast.Link:
			doc.links = append(doc.links, span{string(n.Destination), at})
		case *ast.Image:
			doc.links = append(doc.links, span{string(n.Destination), at})
		}
		return ast.WalkContinue, nil
	})
	return doc
}

// plain is the text of a node without its markup, on one line.
func plain(node ast.Node, source []byte) string {
	var all strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if leaf, ok := n.(*ast.Text); ok && entering {
			all.Write(leaf.Value(source))
			if leaf.SoftLineBreak() {
				all.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.ReplaceAll(all.String(), "\n", " ")
}

// anchor is the name that GitHub gives a heading in a link.
func anchor(heading string) string {
	keep := func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}
	return strings.Map(keep, heading)
}

// TestLinks says that every link in the repository leads to a file, and to a heading if it names one.
func TestLinks(t *testing.T) {
	anchors := map[string][]string{}
	all := documents(t)
	for _, doc := range all {
		for _, h := range doc.headings {
			anchors[doc.path] = append(anchors[doc.path], anchor(h.text))
		}
	}
	for _, doc := range all {
		for _, link := range doc.links {
			if strings.Contains(link.text, "://") {
				continue
			}
			file, name, _ := strings.Cut(link.text, "#")
			path := doc.path
			if file != "" {
				path = filepath.Join(filepath.Dir(doc.path), file)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s:%d: the link %s leads nowhere: %v", doc.path, link.line, link.text, err)
			} else if name != "" && !slices.Contains(anchors[path], name) {
				t.Errorf("%s:%d: the link %s leads to no heading of %s", doc.path, link.line, link.text, path)
			}
		}
	}
}

// TestParse shows what the extraction finds, as everything else stands on it.
func TestParse(t *testing.T) {
	doc := parse("a.md", []byte("# A `b` & c\n\ntext `relink list`\nand [x](y.md#z)\n\n```sh\n\none\n```\n\n    two\n\n- item\n\n  ```console\n  # three\n  ```\n\n| a |\n|---|\n| `relink\tcheck` |\n"))
	if len(doc.headings) != 1 || anchor(doc.headings[0].text) != "a-b--c" {
		t.Errorf("headings: %+v", doc.headings)
	}
	want := []block{{"a.md", 7, "sh", "\none\n"}, {"a.md", 11, "", "two\n"}, {"a.md", 16, "console", "# three\n"}}
	if !slices.Equal(doc.blocks, want) {
		t.Errorf("blocks: %+v, not %+v", doc.blocks, want)
	}
	if doc.blocks[0].first() != "one" {
		t.Errorf("first line: %q", doc.blocks[0].first())
	}
	if want := []span{{"relink list", 3}, {"relink\tcheck", 21}}; !slices.Equal(doc.code[1:], want) {
		t.Errorf("code: %+v, not %+v", doc.code, want)
	}
	if len(doc.links) != 1 || doc.links[0].text != "y.md#z" {
		t.Errorf("links: %+v", doc.links)
	}
}

package docs

import (
	"bytes"
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBlocks checks every block that does not run: what it shows must be so.
func TestBlocks(t *testing.T) {
	for _, doc := range documents(t) {
		for _, b := range doc.blocks {
			e, ok := find(b)
			if !ok {
				continue // TestEveryBlockIsChecked says it.
			}
			switch e.check {
			case file:
				checkFile(t, b, e.with)
			case tree:
				checkTree(t, b)
			case drawing:
				checkDrawing(t, b)
			case parts:
				checkParts(t, b)
			case session, table: // TestSessions
			case usage: // TestReference
			}
		}
	}
}

// checkFile says that the block is the file. Of JSON, only what it says counts.
func checkFile(t *testing.T, b block, path string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Error(err)
		return
	}
	got := []byte(b.text)
	if strings.HasSuffix(path, ".conflist") {
		got, want = compact(t, got), compact(t, want)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:%d: the block is not %s:\n%s\nnot\n%s", b.doc, b.line, path, got, want)
	}
}

func compact(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Errorf("%v in %s", err, b)
	}
	return out.Bytes()
}

// checkTree says that every directory of a drawn tree is there. Each two spaces are a level.
func checkTree(t *testing.T, b block) {
	t.Helper()
	var path []string
	for line := range strings.Lines(b.text) {
		names, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if !strings.HasSuffix(names, "/") {
			continue // It goes on with the line before.
		}
		level := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if level > len(path) {
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			path = append(path[:level:level], strings.TrimSuffix(name, "/"))
			if info, err := os.Stat(filepath.Join(root, filepath.Join(path...))); err != nil || !info.IsDir() {
				t.Errorf("%s:%d: %s is no directory of the repository", b.doc, b.line, filepath.Join(path...))
			}
		}
	}
}

var (
	drawnNode = regexp.MustCompile(`\b\w+\["[^"]*"\]`)
	drawnLine = regexp.MustCompile(`^(\w+( (-->|~~~|---)(\|"[^"]*"\|)? \w+)*|subgraph \w+\["[^"]*"\]|direction (TB|LR)|end|flowchart (TB|LR)|` +
		`sequenceDiagram|participant \w as [\w -]+|\w--?>>\w: [^;#]+|Note over \w: [^;#]+)$`)
)

// checkDrawing says that a diagram of mermaid has only what this project uses of mermaid, and that its parts are closed. A label of
// a flowchart is in quotation marks, and a message has no semicolon and no number sign: mermaid takes these for its own.
func checkDrawing(t *testing.T, b block) {
	t.Helper()
	depth := 0
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		bare := line
		if strings.HasPrefix(line, "subgraph ") {
			depth++
		} else {
			bare = drawnNode.ReplaceAllString(line, "node")
		}
		if line == "end" {
			depth--
		}
		if !drawnLine.MatchString(bare) || depth < 0 {
			t.Errorf("%s:%d: a line that mermaid may not draw: %q", b.doc, b.line, line)
		}
	}
	if depth != 0 {
		t.Errorf("%s:%d: %d more subgraph than end", b.doc, b.line, depth)
	}
}

var target = regexp.MustCompile(`(?m)^([\w-]+):`)

// checkParts says of a block that cannot run that its targets of make and its files of the repository are there. Its relink
// command lines are TestCommandLines'.
func checkParts(t *testing.T, b block) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	for _, words := range calls(t, b.doc, b.line, commandsOf(b)) {
		for _, word := range words[1:] {
			if words[0] == "make" && !strings.Contains(word, "=") && !slices.Contains(targets, word) {
				t.Errorf("%s:%d: the Makefile has no target %s", b.doc, b.line, word)
			}
			inside := strings.HasPrefix(word, "docs/") || strings.HasPrefix(word, "./")
			if _, err := os.Stat(filepath.Join(root, word)); inside && err != nil {
				t.Errorf("%s:%d: %v", b.doc, b.line, err)
			}
		}
	}
}

// TestExamples says that every example is shown or linked by a document.
func TestExamples(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(root, "docs/examples/*"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	all := documents(t)
	for _, path := range examples {
		name := filepath.Base(path)
		linked := slices.ContainsFunc(all, func(doc document) bool {
			return slices.ContainsFunc(doc.links, func(s span) bool { return strings.HasSuffix(s.text, "examples/"+name) })
		})
		shown := slices.ContainsFunc(entries, func(e entry) bool { return e.with == "docs/examples/"+name })
		if !linked && !shown {
			t.Errorf("no document shows docs/examples/%s or leads to it", name)
		}
	}
}

// TestPicturesAreThere says that every picture of docs/images is shown by a document. TestLinks says the reverse.
func TestPicturesAreThere(t *testing.T) {
	pictures, err := filepath.Glob(filepath.Join(root, "docs/images/*.svg"))
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	for _, path := range pictures {
		shown := slices.ContainsFunc(documents(t), func(doc document) bool {
			return slices.ContainsFunc(doc.links, func(s span) bool { return strings.HasSuffix(s.text, "images/"+filepath.Base(path)) })
		})
		if !shown {
			t.Errorf("no document shows docs/images/%s", filepath.Base(path))
		}
	}
}

// TestDemoPicture says that the picture of the demo is of the demo as it is: it has every command and title of the script, in
// order. make demo-svg draws it anew.
func TestDemoPicture(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "test/demo/demo.sh"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(root, "docs/images/demo.svg"))
	if err != nil {
		t.Fatal(err)
	}
	rest := html.UnescapeString(string(picture))
	for _, m := range regexp.MustCompile(`(?m)^(say|show) "?([^"|\n]*[^"|\n ])`).FindAllStringSubmatch(string(script), -1) {
		want := map[string]string{"say": "== ", "show": "$ "}[m[1]] + m[2]
		_, after, ok := strings.Cut(rest, want+"<")
		if !ok {
			t.Errorf("docs/images/demo.svg does not show %q there: draw it anew by make demo-svg", want)
			continue
		}
		rest = after
	}
}

package docs

import (
	"slices"
	"strings"
	"testing"
)

// TestChinese holds README.zh.md to README.md: the same commands and files, as many headings in the same order, the same
// links, and a link from each to the other.
func TestChinese(t *testing.T) {
	english, chinese := read(t, "README.md"), read(t, "README.zh.md")
	if got, want := len(chinese.blocks), len(english.blocks); got != want {
		t.Fatalf("README.zh.md has %d code blocks, README.md %d", got, want)
	}
	for i, b := range english.blocks {
		if b.language == "mermaid" {
			continue // Its labels are translated.
		}
		if c := chinese.blocks[i]; c.text != b.text || c.language != b.language {
			t.Errorf("README.zh.md:%d: the block is not that of README.md:%d:\n%s\nnot\n%s", c.line, b.line, c.text, b.text)
		}
	}
	if got, want := levels(chinese), levels(english); !slices.Equal(got, want) {
		t.Errorf("README.zh.md has headings of the levels %v, README.md %v", got, want)
	}
	if got, want := targets(chinese, "README.md"), targets(english, "README.zh.md"); !slices.Equal(got, want) {
		t.Errorf("README.zh.md leads to\n%s\nREADME.md to\n%s", strings.Join(got, " "), strings.Join(want, " "))
	}
	if !leadsTo(chinese, "README.md") || !leadsTo(english, "README.zh.md") {
		t.Error("README.md and README.zh.md do not lead to each other")
	}
}

func levels(doc document) []int {
	var all []int
	for _, h := range doc.headings {
		all = append(all, h.level)
	}
	return all
}

// targets are the links of a document, less the one to the other language.
func targets(doc document, other string) []string {
	var all []string
	for _, link := range doc.links {
		if link.text != other {
			all = append(all, link.text)
		}
	}
	slices.Sort(all)
	return all
}

func leadsTo(doc document, path string) bool {
	return slices.ContainsFunc(doc.links, func(s span) bool { return s.text == path })
}

package services

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables into docs/host-access.md")

// TestDocumentHasTheTables expects each table right below its comment.
func TestDocumentHasTheTables(t *testing.T) {
	const path = "../../docs/host-access.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := withTable(t, string(b), "<!-- rows: test/services -->\n", Table())
	text = withTable(t, text, "<!-- conditions: test/services -->\n", ConditionTable())
	switch {
	case text == string(b):
	case *update:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has other tables. If the new ones are right: go test ./test/services -run %s -update", path, t.Name())
	}
}

// withTable returns the text with that table below the comment, in place of the one that is there.
func withTable(t *testing.T, text, comment, table string) string {
	t.Helper()
	if n := strings.Count(text, comment); n != 1 {
		t.Fatalf("%d times: %s", n, comment)
	}
	before, after, _ := strings.Cut(text, comment)
	for strings.HasPrefix(after, "|") {
		_, after, _ = strings.Cut(after, "\n")
	}
	return before + comment + table + after
}

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// runsLong are the stories that do more than their length says: a few words start many
// programs.
var runsLong = []string{"killed", "kernel"}

// stories are the names of all stories, those that take long first: what is dealt out
// last decides how long all machines but one have nothing to do.
func stories(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in testdata: %v", err)
	}
	length := map[string]int{}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		length[name] = commandsOf(string(b))
		if slices.Contains(runsLong, name) {
			length[name] += 1000
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(length[b], length[a]) })
	return names
}

// commandsOf returns how many commands a story has.
func commandsOf(story string) int {
	n := 0
	for line := range strings.Lines(story) {
		if strings.HasPrefix(line, "-- ") {
			break
		}
		if line != "\n" && !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// told is how long which story took.
var told []story

type story struct {
	name string
	took time.Duration
}

func remember(name string, took time.Duration) {
	told = append(told, story{name, took})
}

// slowest says which stories took the longest.
func slowest() string {
	const most = 10
	slices.SortFunc(told, func(a, b story) int { return cmp.Compare(b.took, a.took) })
	var all time.Duration
	for _, s := range told {
		all += s.took
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d stories, %.0f s in their machines; the slowest:\n", len(told), all.Seconds())
	for _, s := range told[:min(most, len(told))] {
		fmt.Fprintf(&text, "%7.1f s  %s\n", s.took.Seconds(), s.name)
	}
	return text.String()
}

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

// runsLong are stories that take longer than their length suggests, because a few words start many programs.
var runsLong = []string{"killed", "kubelet"}

// stories returns the names of all stories, the long ones first. If a long story were dealt out last, all machines but
// one would be idle at the end.
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

// commandsOf returns the number of commands in a story.
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

// told are the stories that have run, each with its time.
var told []story

type story struct {
	name string
	took time.Duration
}

func remember(name string, took time.Duration) {
	told = append(told, story{name, took})
}

// slowest returns a text about the stories that took longest.
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

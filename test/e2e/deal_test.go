package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runsLong are stories that take longer than their length suggests, because a few words start many programs.
var runsLong = []string{"killed", "kubelet"}

// later are stories that only make test-long has. testdata/native has kubelet and whole without a driver, a bond and VLANs, and on another
// kernel. In the story agent, the agent does what pci does by hand.
var later = []string{"kubelet", "pci", "whole"}

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
		if slices.Contains(later, name) && os.Getenv("RELINK_LONG") == "" {
			continue
		}
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

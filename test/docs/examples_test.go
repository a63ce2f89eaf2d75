package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// subnetOf finds the object of a range in an example.
var subnetOf = regexp.MustCompile(`\{[^{}]*"subnet": [^{}]*`)

// Each node gives addresses by itself. An example that is copied to two nodes must not give a whole subnet on both.
func TestExamplesGiveOneNodesPart(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/examples/*"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	found := 0
	for _, file := range files {
		if filepath.Base(file) == "multus-vlan40.yaml" {
			continue // Each pod's annotation names its address, as the file and docs/install/README.md say.
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range subnetOf.FindAllString(string(text), -1) {
			found++
			if !regexp.MustCompile(`"rangeStart": .*"rangeEnd": `).MatchString(r) {
				t.Errorf("%s: %s has no part for the node", filepath.Base(file), r)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d ranges: some were not seen", found)
	}
}

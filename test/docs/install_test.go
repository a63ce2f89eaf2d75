package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInstall runs make install, and says that each page tells to remove the files that it makes, and no other file beside them.
func TestInstall(t *testing.T) {
	for name, c := range map[string]struct {
		variables []string
		plugins   string
		pages     []string
	}{
		"default": {nil, "/opt/cni/bin", []string{"containerd", "crio", "rke2", "bare-node"}},
		"k3s":     {[]string{"CNI_BIN=/var/lib/rancher/k3s/data/cni"}, "/var/lib/rancher/k3s/data/cni", []string{"k3s"}},
	} {
		t.Run(name, func(t *testing.T) {
			made := install(t, c.variables...)
			for _, page := range c.pages {
				removed := removedBy(t, page, c.plugins)
				for _, file := range made {
					if !slices.ContainsFunc(removed, func(pattern string) bool { return isOf(file, pattern) }) {
						t.Errorf("docs/install/%s.md does not remove %s, which make install makes", page, file)
					}
				}
				for _, pattern := range removed {
					if !slices.ContainsFunc(made, func(file string) bool { return isOf(file, pattern) }) {
						t.Errorf("docs/install/%s.md removes %s, which make install does not make", page, pattern)
					}
				}
			}
		})
	}
}

// isOf says that a word of a shell, which may have a star, stands for the file.
func isOf(file, pattern string) bool {
	ok, err := filepath.Match(pattern, file)
	return ok && err == nil
}

// install runs make install into a directory of its own and returns the files that this makes.
func install(t *testing.T, variables ...string) []string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("make", append([]string{"-C", root, "--no-print-directory", "install", "DESTDIR=" + dir}, variables...)...)
	// A make that runs this test has flags and variables of its own.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKEFLAGS=") || strings.HasPrefix(v, "MFLAGS=") })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	var made []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			made = append(made, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(made)
	return made
}

// removedBy returns what a page tells to remove below the directories of make install.
func removedBy(t *testing.T, page, plugins string) []string {
	t.Helper()
	var removed []string
	for _, b := range read(t, "docs/install/"+page+".md").blocks {
		for _, words := range calls(t, b.doc, b.line, commandsOf(b)) {
			if words[0] == "rm" {
				removed = append(removed, slices.DeleteFunc(words[1:], func(word string) bool {
					return !strings.HasPrefix(word, plugins+"/") && !strings.HasPrefix(word, "/usr/local/")
				})...)
			}
		}
	}
	return removed
}

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInstall runs make install, and says that the files that it makes are those that each page tells to remove.
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
				if removed := removedBy(t, page, c.plugins); !slices.Equal(removed, made) {
					t.Errorf("docs/install/%s.md removes %q; make install makes %q", page, removed, made)
				}
			}
		})
	}
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

// removedBy returns the programs that a page tells to remove.
func removedBy(t *testing.T, page, plugins string) []string {
	t.Helper()
	program := regexp.MustCompile(`^(` + regexp.QuoteMeta(plugins) + `/relink-[a-z]+|/usr/local/sbin/relink)$`)
	var removed []string
	for _, b := range read(t, "docs/install/"+page+".md").blocks {
		for _, words := range calls(t, b.doc, b.line, commandsOf(b)) {
			if words[0] == "rm" {
				removed = append(removed, slices.DeleteFunc(words[1:], func(w string) bool { return !program.MatchString(w) })...)
			}
		}
	}
	slices.Sort(removed)
	return removed
}

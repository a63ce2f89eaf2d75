package validate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
)

// inDirectory returns the findings for the directory, without its path.
func inDirectory(t *testing.T, dir string) []string {
	t.Helper()
	return findingsInPaths(t, dir, dir)
}

// findingsInPaths returns the findings for the paths, without that of the directory.
func findingsInPaths(t *testing.T, dir string, paths ...string) []string {
	t.Helper()
	report, err := Run(t.Context(), Options{Paths: paths, FilesOnly: true})
	if err != nil {
		return []string{strings.ReplaceAll(err.Error(), dir, "d")}
	}
	var all []string
	for _, line := range lines(report.Findings) {
		all = append(all, strings.ReplaceAll(line, dir, "d"))
	}
	return all
}

func TestWhichFileTheRuntimesTake(t *testing.T) {
	const conf, conflist = `{"cniVersion": "1.0.0", "name": "a", "type": "x"}`, `{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "x"}]}`
	none := func(file, why string) string {
		return "d: error: containerd has no network: it does not load its first file, " + file + ", and takes no later one; CRI-O passes over the file: " + why
	}
	for name, test := range map[string]struct {
		// files are the contents by name. A content that begins with -> makes a symbolic link.
		files map[string]string
		want  string
	}{
		"the only one":             {map[string]string{"10.conf": conf}, "d: note: containerd and CRI-O take 10.conf for all pods"},
		"by name":                  {map[string]string{"05.json": conf, "10.conflist": conflist, "x.yaml": "a: 1\n"}, "d: note: containerd and CRI-O take 05.json for all pods, and not 10.conflist"},
		"first is torn":            {map[string]string{"05.conf": "{", "10.conflist": conflist}, none("05.conf", "error parsing configuration: unexpected end of JSON input")},
		"first is of another form": {map[string]string{"05.conf": conflist, "10.conf": conf}, none("05.conf", "error parsing configuration: missing 'type'")},
		"no plugins":               {map[string]string{"05.conflist": conf}, none("05.conflist", `invalid "plugins": missing: must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`)},
		"refused by libcni":        {map[string]string{"05.conflist": strings.Replace(conflist, `"a"`, `"a", "disableGC": 5`, 1)}, none("05.conflist", "error parsing configuration list: invalid type float64 for disableGC")},
		"no versions":              {map[string]string{"05.conflist": strings.Replace(conflist, `{`, `{"cniVersions": [], `, 1), "10.conf": conf}, "d: note: containerd and CRI-O take 05.conflist for all pods, and not 10.conf"},
		"capabilities":             {map[string]string{"05.conflist": strings.Replace(conflist, `"x"`, `"x", "capabilities": []`, 1)}, none("05.conflist", "failed to parse plugin config 0: error parsing configuration: json: cannot unmarshal array into Go struct field PluginConf.capabilities of type map[string]bool")},
		"a link to nothing":        {map[string]string{"05.conf": "->nowhere", "10.conf": conf}, none("05.conf", "stat d/05.conf: no such file or directory")},
		"a link to a directory":    {map[string]string{"05.conf": "->.", "10.conf": conf}, none("05.conf", "d/05.conf is no regular file")},
	} {
		dir := t.TempDir()
		for file, text := range test.files {
			if target, ok := strings.CutPrefix(text, "->"); ok {
				if err := os.Symlink(target, filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			write(t, filepath.Join(dir, file), text)
		}
		var got string
		for _, line := range inDirectory(t, dir) {
			if strings.HasPrefix(line, "d: ") {
				got += line
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// No file makes it wait or read without end.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/fifo.conf", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", dir+"/zero.yaml"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/large.json", strings.Repeat(" ", maxFile+1))
	want := []string{
		"d: error: containerd has no network: it does not load its first file, fifo.conf, and takes no later one; CRI-O passes over the file: d/fifo.conf is no regular file",
		"d/fifo.conf: error: cannot be read: d/fifo.conf is no regular file",
		"d/large.json: error: cannot be read: d/large.json has more than 10 MiB",
		"d/zero.yaml: error: cannot be read: d/zero.yaml is no regular file",
	}
	if diff := cmp.Diff(want, inDirectory(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := Run(t.Context(), Options{Paths: []string{"/dev/zero"}})
	if want := "no network configuration was read: /dev/zero is no regular file"; err == nil || err.Error() != want || !errors.Is(err, ErrNothing) {
		t.Errorf("%v, want %s", err, want)
	}
	done, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(done, Options{Paths: []string{dir}}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// A path that cannot be read does not hide what is wrong in the others.
func TestAPathThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	there, missing := dir+"/10.conflist", dir+"/20.conflist"
	write(t, there, list(`{"type": "relink-macvlan", "vlna": 3}`))
	for name, test := range map[string]struct {
		paths []string
		want  []string
	}{
		"one of two": {[]string{missing, there, "/dev/zero"}, []string{
			"/dev/zero: error: cannot be read: /dev/zero is no regular file",
			`d/10.conflist: plugins[0] relink-macvlan: error: invalid configuration key "vlna": no such key of relink-macvlan; did you mean "vlan"?`,
			"d/20.conflist: error: cannot be read: no such file or directory",
		}},
		"both": {[]string{missing, "/dev/zero"}, []string{
			"no network configuration was read: stat d/20.conflist: no such file or directory; /dev/zero is no regular file",
		}},
	} {
		if diff := cmp.Diff(test.want, findingsInPaths(t, dir, test.paths...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A user who may not read a file does not learn which file the runtimes take.
func TestAFileThatOnlyRootMayRead(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "validate") // Only root can enter a directory of t.TempDir.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/10.conf", `{"cniVersion": "1.0.0", "name": "a", "type": "x"}`)
	fresh.AsNobody(t, func() {
		want := []string{"d/10.conf: warning: not looked at: permission denied: run as root"}
		if diff := cmp.Diff(want, inDirectory(t, dir)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

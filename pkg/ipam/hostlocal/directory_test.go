package hostlocal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func TestParseFile(t *testing.T) {
	const form = ": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'"
	type whose struct{ ContainerID, IfName, Torn string }
	for name, test := range map[string]struct {
		text string
		want whose
	}{
		"as host-local writes it":      {"c1\r\neth0", whose{"c1", "eth0", ""}},
		"white space at the ends":      {" c1 \r\neth0\n", whose{"c1", "eth0", ""}},
		"a line break of Unix":         {"c1\neth0", whose{"c1", "eth0", ""}},
		"of an old host-local":         {"c1", whose{"c1", "eth0", ""}},
		"of an old one, edited":        {"c1\n", whose{"c1", "eth0", ""}},
		"without an interface":         {"c1\r\n", whose{"c1", "eth0", ""}},
		"the longest container ID":     {strings.Repeat("a", 255) + "\r\neth0", whose{strings.Repeat("a", 255), "eth0", ""}},
		"empty":                        {"", whose{Torn: "it is empty"}},
		"white space alone":            {" \n", whose{Torn: "it has no container ID"}},
		"without a container ID":       {"\r\neth0", whose{Torn: "it has no container ID"}},
		"zeros, as after a power loss": {"\x00\x00\x00", whose{Torn: `container ID "\x00\x00\x00"` + form}},
		"zeros at the end":             {"c1\r\net\x00\x00", whose{Torn: `interface name "et\x00\x00": contains '/', ':', white space or a control character`}},
		"a container ID that goes up":  {"../c1\r\neth0", whose{Torn: `container ID "../c1"` + form}},
		"an interface that goes up":    {"c1\r\n../eth0", whose{Torn: `interface name "../eth0": contains '/', ':', white space or a control character`}},
		"three lines":                  {"c1\r\neth0\r\nmore", whose{Torn: `interface name "eth0\r\nmore": contains '/', ':', white space or a control character`}},
		"too long a container ID":      {strings.Repeat("a", 256), whose{Torn: `container ID "` + strings.Repeat("a", 256) + `": is 256 characters long, at most 255 are allowed`}},
		"too long an interface":        {"c1\r\nsixteen-letters-", whose{Torn: `interface name "sixteen-letters-": has 16 characters, the kernel allows 15`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got whose
			var err error
			if got.ContainerID, got.IfName, err = parseFile([]byte(test.text)); err != nil {
				got.Torn = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseHostLocal(f *testing.F) {
	for _, text := range []string{"c1\r\neth0", "c1", "", "\r\neth0", "c1\r\n", "c1\neth0", "\x00\x00", "c1\r\neth0\r\n", " c1 \r\n eth0 "} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		containerID, ifName, err := parseFile(b)
		if err != nil {
			if containerID != "" || ifName != "" {
				t.Errorf("%q is torn, and %q's", b, containerID)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q is not one line", err)
			}
			return
		}
		key := onLan(containerID, ifName)
		if ifName == "" {
			key.IfName = "eth0"
		}
		if err := key.Validate(); err != nil {
			t.Errorf("%q is %v: %v", b, key, err)
		}
		// The result is what host-local would look for.
		text := strings.TrimSuffix(containerID+"\r\n"+ifName, "\r\n")
		if id, name, err := parseFile([]byte(text)); id != containerID || name != ifName || err != nil {
			t.Errorf("%q is read as %q, %q, %v", text, id, name, err)
		}
	})
}

// host-local and an import exclude each other, and neither of them waits for ever.
func TestImportAndHostLocalExcludeEachOther(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0", "lock": ""})
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	_, err = lock(t.Context(), dir, 20*time.Millisecond)
	want := "lock host-local's directory: " + dir + "/lock: in use by another process (held by " + flock.HoldersOf(f)[0] + ") for more than 20ms; wait for host-local, or end it"
	if !errors.Is(err, lease.ErrBusy) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = f.Close() })
	if r := imported(t, s, dir); !r.Complete() {
		t.Errorf("after host-local: %+v", r)
	}
	unlock, err := lock(t.Context(), dir, flock.DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	again, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := flock.Try(again, flock.Exclusive); !errors.Is(err, lease.ErrBusy) {
		t.Errorf("host-local gets in meanwhile: %v", err)
	}
}

// A file that cannot be read may belong to a live pod. A pipe keeps nobody waiting.
func TestImportHoldsBackWhatCannotBeRead(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0", "large": "", "10.231.77.4": strings.Repeat("a", 5000)})
	if err := os.Symlink(filepath.Join(dir, "10.231.77.2"), filepath.Join(dir, "10.231.77.3")); err != nil {
		t.Fatal(err)
	}
	r := imported(t, s, dir)
	var got []string
	for _, f := range r.Files {
		got = append(got, fmt.Sprintf("%s %s %s", f.File, f.State, f.Reason))
	}
	want := []string{
		"10.231.77.2 imported ",
		"10.231.77.3 torn it is not a regular file: held back, because a pod may have the address",
		"10.231.77.4 torn it has more than 1024 bytes: held back, because a pod may have the address",
		"large ignored host-local has no files of this name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if all := listed(t, s); len(all) != 3 || all[1].State != lease.Reserved || all[2].State != lease.Reserved {
		t.Errorf("leases: %+v", all)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "10.231.77.2")); err != nil {
		t.Fatal(err)
	}
	var source importer.Source
	if addFile(&source, files[0]); len(source.Entries) > 0 {
		t.Error("a file that is gone is taken for torn")
	}
}

package udev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDone(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
		fails string
	}{
		"no udev":                     {files: nil, want: true},
		"an old entry, but no udev":   {files: map[string]string{"data/n7": "E:ID_NET_DRIVER=e1000e\n"}, want: true},
		"no entry yet":                {files: map[string]string{"control": ""}, want: false},
		"an entry of another device":  {files: map[string]string{"control": "", "data/n77": "I:1\n"}, want: false},
		"an entry without the time":   {files: map[string]string{"control": "", "data/n7": "E:ID_NET_DRIVER=I:\n"}, want: false},
		"an entry":                    {files: map[string]string{"control": "", "data/n7": "I:1234\nE:ID_NET_DRIVER=e1000e\n"}, want: true},
		"the time is not at the head": {files: map[string]string{"control": "", "data/n7": "L:0\nI:1234\n"}, want: true},
		"an entry that is no file":    {files: map[string]string{"control": "", "data/n7/x": ""}, fails: "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(DirEnv, dir)
			for path, text := range test.files {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			done, err := Initialized(7)
			if done != test.want || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("Done() = %v, %v, want %v, %q", done, err, test.want, test.fails)
			}
		})
	}
}

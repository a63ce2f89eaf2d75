package boot

import (
	"os"
	"path/filepath"
	"testing"
)

// Only what machine-id(5) calls an ID is one. The first file that has one counts.
func TestMachineID(t *testing.T) {
	usual := machinePaths
	t.Cleanup(func() { machinePaths = usual })
	const one, two = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	for name, test := range map[string]struct{ systemd, dbus, want string }{
		"systemd's":            {one + "\n", two, one},
		"that of D-Bus":        {"", two + "\n", two},
		"an image":             {"uninitialized\n", "", ""},
		"an image with D-Bus":  {"uninitialized\n", two, two},
		"zeros":                {"00000000000000000000000000000000", "", ""},
		"cut short":            {one[:31], "", ""},
		"neither has anything": {"", "", ""},
	} {
		dir := t.TempDir()
		machinePaths = nil
		for i, text := range []string{test.systemd, test.dbus} {
			machinePaths = append(machinePaths, filepath.Join(dir, string(rune('a'+i))))
			if text == "" {
				continue
			}
			if err := os.WriteFile(machinePaths[i], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := MachineID(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

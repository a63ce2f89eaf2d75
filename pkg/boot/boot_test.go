package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestIDIsTheKernels(t *testing.T) {
	first, err := ID()
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("ID() = %q, %v", first, err)
	}
	if again, err := ID(); again != first || err != nil {
		t.Errorf("and then %q, %v", again, err)
	}
}

func TestAFailureIsNotRemembered(t *testing.T) {
	usual := path
	t.Cleanup(func() { path = usual })
	cachedID.Store(nil)
	path = "/missing"
	if id, err := ID(); err == nil {
		t.Errorf("ID() = %q without a file", id)
	}
	path = usual
	if id, err := ID(); err != nil || id == "" {
		t.Errorf("and then %q, %v", id, err)
	}
}

// Uptime agrees with /proc/uptime, which nobody can set and which goes on while the machine sleeps.
func TestUptimeIsTheKernels(t *testing.T) {
	uptime := func() (seconds float64) {
		t.Helper()
		b, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(b), &seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	before := uptime()
	got, err := Uptime()
	if after := uptime(); err != nil || got.Seconds() < before-0.1 || got.Seconds() > after+0.1 {
		t.Errorf("%s, /proc/uptime says %.2f to %.2f s: %v", got, before, after, err)
	}
}

// A container can have a file of its own in this place. Its ID is not the kernel's, so everything would seem to be of
// an earlier boot.
func TestIDOfSomebodyElseIsRefused(t *testing.T) {
	usual := path
	t.Cleanup(func() { path = usual })
	cachedID.Store(nil)
	path = filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(path, []byte("0ddba115-0000-4000-8000-000000000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := ID()
	if want := "read boot ID: " + path + " is not the kernel's: something is mounted over it, as in a container"; err == nil || err.Error() != want {
		t.Errorf("%q, %v", id, err)
	}
}

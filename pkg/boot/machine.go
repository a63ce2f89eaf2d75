package boot

import (
	"os"
	"regexp"
	"strings"
)

// machinePaths are the files with the machine ID: systemd's, and that of D-Bus for systems without systemd. Tests replace them.
var machinePaths = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

// machineID is the form of a machine ID: machine-id(5).
var machineID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// MachineID returns the ID of this installation of the system. It is empty if there is none: both files are missing, as in a
// container, or empty, or say "uninitialized", as in an image that has not booted yet.
func MachineID() string {
	for _, path := range machinePaths {
		b, err := os.ReadFile(path)
		if id := strings.TrimSpace(string(b)); err == nil && machineID.MatchString(id) && strings.Trim(id, "0") != "" {
			return id
		}
	}
	return ""
}

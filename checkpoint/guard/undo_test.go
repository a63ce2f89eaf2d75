package guard

import "testing"

// A command that only takes the driver away is what the shell leaves of `relink guard -- modprobe -r i40e && modprobe
// i40e`.
func TestUndoOf(t *testing.T) {
	for name, test := range map[string]struct {
		command []string
		want    string // empty if the command may run
	}{
		"modprobe -r":            {[]string{"modprobe", "-r", "i40e"}, "modprobe i40e"},
		"its other flags":        {[]string{"/sbin/modprobe", "-rv", "i40e"}, "modprobe i40e"},
		"--remove":               {[]string{"sudo", "-n", "modprobe", "--remove", "i40e"}, "modprobe i40e"},
		"timeout":                {[]string{"timeout", "60s", "nice", "-n", "5", "modprobe", "-r", "i40e"}, "modprobe i40e"},
		"rmmod of two":           {[]string{"rmmod", "iavf", "i40e"}, "modprobe i40e"},
		"a reload":               {[]string{"sh", "-c", "modprobe -r i40e && modprobe i40e"}, ""},
		"words behind a shell":   {[]string{"bash", "reload.sh", "rmmod", "i40e"}, ""},
		"a program":              {[]string{"update-firmware", "-r"}, ""},
		"modprobe that loads":    {[]string{"modprobe", "i40e"}, ""},
		"modprobe with settings": {[]string{"modprobe", "--verbose", "i40e"}, ""},
		"rmmod of nothing":       {[]string{"rmmod"}, ""},
	} {
		if got := undoOf(test.command); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

package guard

import "testing"

// A command that only takes the driver away is what the shell leaves of `relink guard -- modprobe -r i40e && modprobe
// i40e`.
func TestRemovals(t *testing.T) {
	const unbind = "/sys/bus/pci/drivers/i40e/unbind"
	for name, test := range map[string]struct {
		command []string
		want    string // the spelling, "" if the command may run
	}{
		"modprobe -r":            {[]string{"modprobe", "-r", "i40e"}, "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'"},
		"its other flags":        {[]string{"/sbin/modprobe", "-rv", "i40e"}, "relink guard -- sh -c '/sbin/modprobe -rv i40e && modprobe i40e'"},
		"--remove":               {[]string{"sudo", "-n", "modprobe", "--remove", "i40e"}, "relink guard -- sh -c 'modprobe --remove i40e && modprobe i40e'"},
		"timeout":                {[]string{"timeout", "60s", "nice", "-n", "5", "modprobe", "-r", "i40e"}, "relink guard -- sh -c 'modprobe -r i40e && modprobe i40e'"},
		"rmmod of two":           {[]string{"rmmod", "iavf", "i40e"}, "relink guard -- sh -c 'rmmod iavf i40e && modprobe i40e'"},
		"a line of the shell":    {[]string{"sh", "-ec", "modprobe -r i40e; sleep 2"}, "relink guard -- sh -c 'modprobe -r i40e; sleep 2 && modprobe i40e'"},
		"with its output away":   {[]string{"sh", "-c", "modprobe -r i40e 2>/dev/null"}, "relink guard -- sh -c 'modprobe -r i40e 2>/dev/null && modprobe i40e'"},
		"with all output away":   {[]string{"sh", "-c", "rmmod i40e >/dev/null 2>&1"}, "relink guard -- sh -c 'rmmod i40e >/dev/null 2>&1 && modprobe i40e'"},
		"with a log":             {[]string{"bash", "-c", "rmmod i40e &>>/tmp/log"}, "relink guard -- sh -c 'rmmod i40e &>>/tmp/log && modprobe i40e'"},
		"a reload with a log":    {[]string{"sh", "-c", "rmmod i40e 2>&1; modprobe i40e 2>&1"}, ""},
		"unbind":                 {[]string{"bash", "-c", "echo 0000:3b:00.0 >" + unbind}, "relink guard -- sh -c 'echo 0000:3b:00.0 >" + unbind + " && echo DEVICE > /sys/bus/pci/drivers/i40e/bind'"},
		"unbind by tee":          {[]string{"sh", "-c", "echo 0000:3b:00.0 | tee " + unbind}, "relink guard -- sh -c 'echo 0000:3b:00.0 | tee " + unbind + " && echo DEVICE > /sys/bus/pci/drivers/i40e/bind'"},
		"a device of the bus":    {[]string{"sh", "-c", "echo 1 > /sys/bus/pci/devices/0000:3b:00.0/remove"}, "relink guard -- sh -c 'echo 1 > /sys/bus/pci/devices/0000:3b:00.0/remove && echo 1 > /sys/bus/pci/rescan'"},
		"a reload":               {[]string{"sh", "-c", "modprobe -r i40e && modprobe i40e"}, ""},
		"a reload by insmod":     {[]string{"sh", "-c", "rmmod i40e\ninsmod /root/i40e.ko"}, ""},
		"unbind and bind":        {[]string{"sh", "-c", "cd /sys/bus/pci/drivers/i40e; echo 0000:3b:00.0 > unbind; echo 0000:3b:00.0 > bind"}, ""},
		"a program":              {[]string{"update-firmware", "-r"}, ""},
		"modprobe that loads":    {[]string{"modprobe", "i40e"}, ""},
		"a script":               {[]string{"sh", "/root/reload.sh"}, ""},
		"a removal in a program": {[]string{"sh", "-c", "modprobe -r i40e; ./load"}, ""},
	} {
		r, ok := removalOf(test.command)
		if got := r.suggestion(); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: %v, %s; want %s", name, ok, got, test.want)
		}
	}
}

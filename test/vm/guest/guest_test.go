// Package guest_test runs in the test machine and checks what the machine promises to those that run in it.
package guest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

func TestMain(m *testing.M) { vm.Main(m) }

// must runs a shell command line and returns its output.
func must(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func sysfs(nic, file string) string {
	text, _ := os.ReadFile(filepath.Join("/sys/class/net", nic, file)) // absent with the NIC
	return string(bytes.TrimSpace(text))
}

func TestEnvironment(t *testing.T) {
	if !vm.InGuest() || os.Getuid() != 0 || os.Getenv("HOME") != "/root" {
		t.Errorf("InGuest %v, user %d, HOME %q", vm.InGuest(), os.Getuid(), os.Getenv("HOME"))
	}
	if name, err := os.Hostname(); err != nil || name == "" || name == "(none)" {
		t.Errorf("the hostname is %q, %v", name, err)
	}
	for _, path := range []string{
		"/proc/self", "/sys/fs/cgroup/cgroup.controllers", "/dev/pts/ptmx", "/dev/shm", "/dev/null", "/proc/sys/net/ipv6",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir("/var/lib"); err != nil || len(entries) > 0 {
		t.Errorf("/var/lib has %d entries, %v", len(entries), err)
	}
	must(t, "ping -c 1 -W 2 127.0.0.1 && ping -c 1 -W 2 ::1 && ping -c 1 -W 2 \"$(hostname)\"")
}

func TestClockIsTheHosts(t *testing.T) {
	file := filepath.Join(os.Getenv("RELINK_VM_SHARE"), "now")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(info.ModTime()).Abs(); off > 10*time.Second {
		t.Errorf("the guest's clock is %v off the host's", off)
	}
}

// A shell makes what it starts with & ignore an interrupt. A story that fails ends its programs with one.
func TestInterruptEndsAProgram(t *testing.T) {
	sleep := exec.Command("sleep", "10")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if err := sleep.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := sleep.Wait(); err == nil || err.Error() != "signal: interrupt" {
		t.Errorf("the program ended with %v, want that the interrupt ends it", err)
	}
}

func TestModulesLoad(t *testing.T) {
	for _, name := range []string{
		"8021q", "bonding", "macvlan", "macvtap", "ipvlan", "dummy", "veth", "bridge", "sch_tbf", "sch_ingress",
		"act_mirred", "act_police", "vrf", "tun", "vxlan", "br_netfilter", "nf_tables", "sch_netem",
	} {
		must(t, "modprobe "+name)
	}
}

func TestNICs(t *testing.T) {
	for _, nic := range []struct{ name, mac, bus string }{
		{"eth0", "52:54:00:00:00:01", "0000:00:02.0"}, {"eth1", "52:54:00:00:00:02", "0000:00:03.0"},
	} {
		bus, _ := os.Readlink(filepath.Join("/sys/class/net", nic.name, "device"))
		driver, _ := os.Readlink(filepath.Join("/sys/class/net", nic.name, "device/driver"))
		got := []string{sysfs(nic.name, "address"), filepath.Base(bus), filepath.Base(driver), sysfs(nic.name, "operstate")}
		want := []string{nic.mac, nic.bus, "e1000e", "down"}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s is %q, want %q", nic.name, got, want)
		}
	}
	wire := func() string { return must(t, "ip -netns wire -o link show dev wire0") }
	if is := wire(); !strings.Contains(is, "52:54:00:00:00:10") {
		t.Errorf("wire0 is %s", is)
	}
	// The boot sets it up, and does not wait for its carrier.
	await(t, "carrier on wire0", func() bool { return strings.Contains(wire(), "LOWER_UP") })
	if spare := must(t, "ip -netns wire -o link show dev spare0"); !strings.Contains(spare, "52:54:00:00:00:11") || strings.Contains(spare, "LOWER_UP") {
		t.Errorf("spare0 is %s", spare)
	}
	if _, err := os.Stat("/sys/class/net/eth2"); err == nil {
		t.Error("there is a third NIC in the first namespace")
	}
}

// pingOverVLAN builds VLAN 3 on a NIC that has none and pings the other end of the wire over it.
func pingOverVLAN(t *testing.T, nic string) {
	t.Helper()
	start := time.Now()
	must(t, "ip link set "+nic+" up")
	await(t, "carrier on "+nic, func() bool { return sysfs(nic, "carrier") == "1" })
	t.Logf("%s has carrier %v after being set up", nic, time.Since(start).Round(time.Millisecond))
	must(t, "ip link add link "+nic+" name vlan3 type vlan id 3 && ip addr add 10.3.0.1/24 dev vlan3 && ip link set vlan3 up")
	must(t, "ping -c 3 -i 0.2 -W 5 10.3.0.2")
	must(t, "ip link del vlan3")
}

func TestNICsComeBack(t *testing.T) {
	must(t, `ip -netns wire link add link wire0 name wire0.3 type vlan id 3
		ip -netns wire addr add 10.3.0.2/24 dev wire0.3
		ip -netns wire link set wire0.3 up`)
	pingOverVLAN(t, "eth0")
	pingOverVLAN(t, "eth1")
	tests := []struct {
		name, away, back string
		gone             []string
	}{
		{"driver", "rmmod e1000e", "modprobe e1000e", []string{"eth0", "eth1"}},
		{"unbind", "echo 0000:00:02.0 >/sys/bus/pci/drivers/e1000e/unbind",
			"echo 0000:00:02.0 >/sys/bus/pci/drivers/e1000e/bind", []string{"eth0"}},
		{"remove", "echo 1 >/sys/bus/pci/devices/0000:00:03.0/remove", "echo 1 >/sys/bus/pci/rescan", []string{"eth1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			macs := map[string]string{}
			for _, nic := range test.gone {
				macs[nic] = sysfs(nic, "address")
			}
			must(t, test.away)
			for _, nic := range test.gone {
				if sysfs(nic, "address") != "" {
					t.Fatalf("%s is still there", nic)
				}
			}
			must(t, test.back)
			for _, nic := range test.gone {
				await(t, nic, func() bool { return sysfs(nic, "address") == macs[nic] })
				pingOverVLAN(t, nic)
			}
		})
	}
}

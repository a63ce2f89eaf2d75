package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience is how long a story waits for the kernel, for the wire or for an agent. It is for a host that is busy otherwise.
const patience = 3 * time.Minute

// eventually calls try until it returns nil. After patience it returns the last error of try.
func eventually(try func() error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
	}
	return err
}

// nics are the bus addresses of eth0 and eth1.
var nics = map[string]string{"eth0": "0000:00:02.0", "eth1": "0000:00:03.0"}

// cleanNode restores the state in which each story begins: eth0 and eth1 are down with nothing on them, there are no
// pods, nothing is remembered, and nothing but the NICs wire0 and spare0 is on the wire.
func cleanNode() error {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return err
	}
	var pods []string
	for _, entry := range entries {
		if entry.Name() != "wire" {
			pods = append(pods, "netns del "+entry.Name())
		}
	}
	for _, clean := range []func() error{
		func() error { return ipBatch("", pods...) },
		func() error { return os.RemoveAll("/run/relink") },
		func() error { return os.RemoveAll("/var/lib/cni") },
		func() error { return os.RemoveAll("/run/udev") },
		func() error { return program("modprobe", "-r", "e1000e") },
		func() error { return os.RemoveAll("/run/systemd/network") },
		deleteDevices,
		giveSpareBack,
		func() error { return within("wire", deleteDevices) },
		func() error { return ipBatch("wire", "addr flush dev wire0 scope global") },
		loadDriver,
	} {
		if err := clean(); err != nil {
			return err
		}
	}
	return nil
}

// deleteDevices deletes all devices of this namespace that can be deleted. lo cannot. Some devices go together with
// another one.
func deleteDevices() error {
	devices, err := net.Interfaces()
	if err != nil {
		return err
	}
	var lines []string
	for _, device := range devices {
		if device.Name != "lo" && device.Name != "wire0" {
			lines = append(lines, "link del "+device.Name)
		}
	}
	if len(lines) > 0 {
		_ = ipBatch("", lines...) // A failed line does not stop the others.
	}
	return nil
}

// giveSpareBack moves spare0 back to the wire, if a story has taken it from there. It loses its addresses.
func giveSpareBack() error {
	if _, err := net.InterfaceByName("spare0"); err == nil {
		return ipBatch("", "link set spare0 down netns wire")
	}
	return nil
}

// loadDriver loads the NICs' driver, and makes sure that the NICs have their names.
func loadDriver() error {
	if err := program("modprobe", "e1000e"); err != nil {
		return err
	}
	if onBus("eth0") && onBus("eth1") {
		if err := awaitDevices("eth0", "eth1"); err != nil || inOrder() {
			return err
		}
	}
	return findNICsAgain()
}

func onBus(name string) bool {
	_, err := os.Stat("/sys/bus/pci/devices/" + nics[name])
	return err == nil
}

// inOrder reports whether each NIC has the name that belongs to its bus address.
func inOrder() bool {
	for name, address := range nics {
		if device, _ := os.Readlink("/sys/class/net/" + name + "/device"); filepath.Base(device) != address {
			return false
		}
	}
	return true
}

// findNICsAgain removes the NICs from the bus. Then it lets the kernel find them together, in their first order, so
// that they get their first names.
func findNICsAgain() error {
	if err := program("modprobe", "-r", "e1000e"); err != nil {
		return err
	}
	for name, address := range nics {
		if onBus(name) {
			if err := os.WriteFile("/sys/bus/pci/devices/"+address+"/remove", []byte("1"), 0); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
		return err
	}
	if err := program("modprobe", "e1000e"); err != nil {
		return err
	}
	return awaitDevices("eth0", "eth1")
}

func awaitDevices(names ...string) error {
	return eventually(func() error {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join("/sys/class/net", name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// incidental are values in ip's output that are no property of an interface: counters, timers and states on the way.
var incidental = []string{
	"link_index",          // The parent's index. The parent is a new device.
	"link_netnsid",        // The number by which the pod knows the host.
	"operstate",           // It is unknown if the carrier was there from the start.
	"usedbcqueuelen",      // The largest value of all macvlans on the parent.
	"gc_timer",            // A timer of a bridge.
	"forward_delay_timer", // A timer of the bridge's port.
	"valid_life_time",     // A timer.
	"preferred_life_time", // A timer.
	"expires",             // The same timer, of the kernel's route.
}

// podState returns what iproute2 tells of a pod's interfaces, addresses, routes, rules, neighbours and qdiscs, and all
// their settings, without incidental values. It first waits until no address is tentative.
func podState(pod string) (string, error) {
	var state strings.Builder
	err := within(pod, func() error {
		if err := eventually(noneTentative); err != nil {
			return fmt.Errorf("%s: %w", pod, err)
		}
		if err := describeAll(&state, map[string][]string{
			"-d": {"link", "addr", "neigh show nud permanent", "neigh show proxy"},
			"-4": {"route show table all", "rule"},
			"-6": {"route show table all", "rule"},
		}); err != nil {
			return err
		}
		text := linkLocalRoute.ReplaceAllString(state.String(), "")
		state.Reset()
		state.WriteString(text)
		return describeRest(&state)
	})
	return state.String(), err
}

// noneTentative returns an error that names this namespace's tentative addresses.
func noneTentative() error {
	const tentative, flagsColumn = 0x40, 4
	b, err := os.ReadFile("/proc/thread-self/net/if_inet6")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		flags, err := strconv.ParseUint(strings.Fields(line)[flagsColumn], 16, 32)
		if err != nil {
			return err
		}
		if flags&tentative != 0 {
			return fmt.Errorf("tentative address: %s", line)
		}
	}
	return nil
}

// describeRest writes what ip does not tell of this namespace's interfaces: qdiscs, filters and settings.
func describeRest(w io.Writer) error {
	devices, err := net.Interfaces()
	if err != nil {
		return err
	}
	var lines []string
	for _, device := range devices {
		lines = append(lines, "qdisc show dev "+device.Name, "filter show dev "+device.Name+" ingress")
	}
	out, err := batch("tc", []string{"-d"}, lines)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "qdisc no") {
			fmt.Fprint(w, counted.ReplaceAllString(line, "$1 -"))
		}
	}
	for _, dir := range []string{"ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"} {
		if err := describeSettings(w, dir); err != nil {
			return err
		}
	}
	return nil
}

// describeSettings writes the settings of all interfaces of this namespace. It leaves out settings that cannot be read,
// because they are not set or can only be written.
func describeSettings(w io.Writer, dir string) error {
	files, err := filepath.Glob("/proc/sys/net/" + dir + "/*/*")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no settings in %s", dir)
	}
	for _, file := range files {
		if strings.Contains(file, "/conf/all/") {
			continue
		}
		if b, err := os.ReadFile(file); err == nil {
			fmt.Fprintf(w, "%s:%s\n", strings.TrimPrefix(file, "/proc/sys/net/"), strings.TrimSuffix(string(b), "\n"))
		}
	}
	return nil
}

// linkLocalRoute matches the route of an interface's link-local addresses in the main table. The kernel makes it again
// when the carrier comes, even if somebody had removed it.
var linkLocalRoute = regexp.MustCompile(`(?m)^.*"dst":"fe80::/64","flags":\[\],"metric":256,"pref":"medium","protocol":"kernel"}\n`)

// counted matches the counters in tc's output: references, and the uses of an action.
var counted = regexp.MustCompile(`(refcnt|index|ref|bind|installed|used) \d+( sec)?`)

// deviceState returns what iproute2 tells of a device of the host, without incidental values.
func deviceState(name string) (string, error) {
	var state strings.Builder
	err := describeAll(&state, map[string][]string{
		"-d": {"link show dev " + name},
		"-4": {"addr show dev " + name, "route show table all dev " + name},
		"-6": {"addr show scope global dev " + name, "route show proto boot dev " + name},
	})
	// The device is a new one, so it has another index. The states of its members are not compared.
	return devicesNumber.ReplaceAllString(state.String(), ""), err
}

var devicesNumber = regexp.MustCompile(`"(ifindex|active_slave|operstate|ad_info|tentative)":("[^"]*"|\d+|\{[^}]*\}|true),?|"LOWER_UP",|"NO-CARRIER",`)

// describeAll writes a line for each object that ip tells of in this namespace. questions are ip's command lines, by
// the option that belongs to them.
func describeAll(w io.Writer, questions map[string][]string) error {
	for _, option := range slices.Sorted(maps.Keys(questions)) {
		out, err := batch("ip", []string{"-j", option}, questions[option])
		if err != nil {
			return err
		}
		answers := json.NewDecoder(strings.NewReader(out))
		for _, question := range questions[option] {
			var objects []map[string]any
			if err := answers.Decode(&objects); err != nil {
				return fmt.Errorf("ip %s %s: %w\n%s", option, question, err, out)
			}
			fmt.Fprintf(w, "%s %s\n", option, question)
			for _, line := range describe(objects) {
				fmt.Fprintf(w, "  %s\n", line)
			}
		}
		if answers.More() {
			return fmt.Errorf("ip %s answers more than it was asked:\n%s", option, out)
		}
	}
	return nil
}

// describe returns a line for each object. The lines are sorted.
func describe(objects []map[string]any) []string {
	var lines []string
	for _, o := range objects {
		strip(o)
		b, _ := json.Marshal(o)
		lines = append(lines, string(b))
	}
	slices.Sort(lines)
	return lines
}

// byAddress sorts addresses. The kernel lists its own link-local address in the order in which the addresses were made,
// so its place depends on when the carrier came.
func byAddress(list []any) {
	local := func(v any) string { return fmt.Sprint(v.(map[string]any)["local"]) }
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(local(a), local(b)) })
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range incidental {
			delete(v, key)
		}
		for key, value := range v {
			strip(value)
			if list, ok := value.([]any); ok && key == "addr_info" {
				byAddress(list)
			}
		}
	case []any:
		for _, value := range v {
			strip(value)
		}
	}
}

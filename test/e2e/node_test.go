package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// shell runs a shell command line and returns its output.
func shell(line string) (string, error) {
	out, err := exec.Command("sh", "-ec", line).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}

// patience is how long a story waits for what takes the kernel or the wire some
// time.
const patience = 20 * time.Second

// eventually calls try until it returns nil, and returns its last error when the
// patience is at its end.
func eventually(try func() error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
	}
	return err
}

// cleanNode puts the node into the state in which each story finds it: eth0 and
// eth1 down with nothing on them, no pods, nothing remembered, nothing on the wire.
func cleanNode() error {
	_, err := shell(`
		for ns in $(ls /run/netns); do [ $ns = wire ] || ip netns del $ns; done
		rm -rf /run/relink /var/lib/cni /run/udev
		modprobe -r e1000e
		for dev in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do [ $dev = lo ] || ip link del $dev 2>/dev/null || true; done
		for dev in $(ip -n wire -o link | cut -d: -f2 | cut -d@ -f1); do [ $dev = lo ] || [ $dev = wire0 ] || ip -n wire link del $dev 2>/dev/null || true; done
		ip -n wire addr flush dev wire0 scope global
		# Off the bus and found again together, the NICs are in their first order,
		# and so get their first names.
		for nic in 0000:00:02.0 0000:00:03.0; do
			[ ! -e /sys/bus/pci/devices/$nic ] || echo 1 > /sys/bus/pci/devices/$nic/remove
		done
		echo 1 > /sys/bus/pci/rescan
		modprobe e1000e`)
	if err != nil {
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

// incidental are the values in ip's output that say nothing about what an
// interface is: numbers that the kernel counts up, and how far it is with a thing.
var incidental = []string{
	"link_index",          // the parent's index: the parent is a new device
	"link_netnsid",        // the number by which the pod knows the host
	"operstate",           // of an interface whose carrier was there from the start, unknown
	"usedbcqueuelen",      // the largest of all macvlans on the parent
	"gc_timer",            // counts down, of a bridge
	"forward_delay_timer", // counts down, of its port
	"valid_life_time",     // counts down
	"preferred_life_time", // counts down
}

// podState returns what iproute2 tells of a pod's interfaces, addresses, routes,
// rules, neighbours and qdiscs, less what is incidental, and all of their settings, for a
// comparison. It waits until no address is tentative.
func podState(pod string) (string, error) {
	if err := eventually(func() error {
		out, err := shell("ip -n " + pod + " -6 addr show tentative")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("%s: tentative addresses: %s", pod, out)
		}
		return err
	}); err != nil {
		return "", err
	}
	var state strings.Builder
	err := describeAll(&state, "-n "+pod, "-d link", "addr", "-4 route show table all", "-6 route show table all", "-4 rule", "-6 rule",
		"neigh show nud permanent", "neigh show proxy")
	if err != nil {
		return "", err
	}
	text := linkLocalRoute.ReplaceAllString(state.String(), "")
	state.Reset()
	state.WriteString(text)
	for _, line := range []string{
		"for dev in $(ls /sys/class/net); do tc -d qdisc show dev $dev; tc -d filter show dev $dev ingress; done | grep -v 'qdisc no' || true",
		"cd /proc/sys/net; grep -rs . ipv4/conf ipv6/conf ipv4/neigh ipv6/neigh | grep -v /conf/all/ | sort",
	} {
		out, err := shell("ip netns exec " + pod + " sh -ec '" + strings.ReplaceAll(line, "'", `'"'"'`) + "'")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&state, "%s\n", counted.ReplaceAllString(out, "$1 -"))
	}
	return state.String(), nil
}

// linkLocalRoute is the route of an interface's link-local addresses in the main table. The
// kernel makes it again when the carrier comes, even if somebody had taken it away.
var linkLocalRoute = regexp.MustCompile(`(?m)^.*"dst":"fe80::/64","flags":\[\],"metric":256,"pref":"medium","protocol":"kernel"}\n`)

// counted is what tc prints that the kernel counts up: references, and how often an
// action was used.
var counted = regexp.MustCompile(`(refcnt|index|ref|bind|installed|used) \d+( sec)?`)

// deviceState returns what iproute2 tells of a device of the host, less what is
// incidental.
func deviceState(name string) (string, error) {
	var state strings.Builder
	err := describeAll(&state, "", "-d link show dev "+name, "-4 addr show dev "+name, "-6 addr show scope global dev "+name,
		"-4 route show table all dev "+name, "-6 route show proto boot dev "+name)
	// The device is another one, and how far its members are with it is their affair.
	return devicesNumber.ReplaceAllString(state.String(), ""), err
}

var devicesNumber = regexp.MustCompile(`"(ifindex|active_slave|operstate|ad_info|tentative)":("[^"]*"|\d+|\{[^}]*\}|true),?|"LOWER_UP",|"NO-CARRIER",`)

// describeAll writes a line for each object that ip tells of.
func describeAll(w io.Writer, options string, whats ...string) error {
	for _, what := range whats {
		out, err := shell("ip -j " + options + " " + what)
		if err != nil {
			return err
		}
		if strings.TrimSpace(out) == "" {
			out = "[]"
		}
		var objects []map[string]any
		if err := json.Unmarshal([]byte(out), &objects); err != nil {
			return fmt.Errorf("ip %s: %w", what, err)
		}
		fmt.Fprintf(w, "%s\n", what)
		for _, line := range describe(objects) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	return nil
}

// describe returns a line for each object, in an order of its own.
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

// byAddress orders addresses. The kernel lists a link-local one of its own where it was
// made, which is when the carrier comes.
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

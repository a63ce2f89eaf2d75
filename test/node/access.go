package node

import (
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// Addressed gives the host an address of each family, on the device nic0. What host access leaves of a test that failed goes at the
// end.
func Addressed(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link set lo up; ip link add nic0 up type bridge; ip address add 192.0.2.1/24 dev nic0; ip address add fd00:77::1/64 dev nic0 nodad")
	t.Cleanup(func() {
		fresh.IP(t, "", "link del nic0")
		fresh.Run(t, "", `{ ip rule del priority 1140; ip -6 rule del priority 1140; ip address del 169.254.114.1/32 dev lo
			ip address del fd72:656c:696e:6b::1/128 dev lo; iptables -t nat -F; iptables -t nat -X; ip6tables -t nat -F; ip6tables -t nat -X; } 2>/dev/null || true`)
	})
}

// AccessLeft counts what the host has of host access. It leaves out what is none.
func AccessLeft(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	out := fresh.Run(t, "", `count() { echo "$1=$(grep -c "$2" || true)"; }
		# ip complains of each pair whose other end is in a namespace that has no name for it.
		ip -o link show type veth 2>/dev/null | count pairs ': rl'
		for family in 4 6; do
			ip -$family rule | count IPv$family-rules '^1140:'
			ip -$family route show table 1140 2>&1 | count IPv$family-routes ' dev '
		done
		ip -o address show dev lo | count stand-ins '169\.254\.114\.1/\|fd72:656c:696e:6b::1/'
		iptables-save | count IPv4-chains-and-jumps RELINK
		ip6tables-save | count IPv6-chains-and-jumps RELINK`)
	for line := range strings.Lines(out) {
		what, number, _ := strings.Cut(strings.TrimSpace(line), "=")
		count, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		found[what] = count
	}
	if len(found) != 8 {
		t.Fatalf("counted: %v", found)
	}
	maps.DeleteFunc(found, func(_ string, count int) bool { return count == 0 })
	return found
}

// AccessLeftByDEL is AccessLeft without the rules of iptables, which stay until a sweep.
func AccessLeftByDEL(t *testing.T) map[string]int {
	t.Helper()
	found := AccessLeft(t)
	maps.DeleteFunc(found, func(what string, _ int) bool { return strings.HasSuffix(what, "-chains-and-jumps") })
	return found
}

// Reaches says whether the address answers there within some seconds. A new IPv6 address answers when the kernel comes to it, which
// can take a moment on a busy machine.
func Reaches(netns, address string) bool { return Answers(netns, address, "-w", "10") }

// Answers says whether the address answers a ping there. An empty path is the host's.
func Answers(netns, address string, options ...string) bool {
	var err error
	ping := func() {
		err = exec.Command("ping", append(append([]string{"-c", "1", "-W", "2"}, options...), address)...).Run()
	}
	if netns == "" {
		ping()
	} else if entered := fresh.In(netns, ping); entered != nil {
		return false
	}
	return err == nil
}

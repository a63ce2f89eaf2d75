package crash

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// incidental are values in ip's output that are no property of an interface: counters, timers and states on the way.
var incidental = []string{"link_index", "link_netnsid", "valid_life_time", "preferred_life_time", "tentative", "nodad"}

// state returns what iproute2 tells of the namespace's links, addresses and routes: sorted lines without incidental
// values.
func state(t *testing.T, netns string) []string {
	t.Helper()
	// Link-local addresses are left out, because they come only after duplicate address detection.
	out := fresh.Run(t, netns, `ip -d -j link; ip -j addr show scope global; ip -j -4 route show table all; ip -j -6 route`)
	var lines []string
	decoder := json.NewDecoder(strings.NewReader(out))
	for {
		var objects []map[string]any
		if err := decoder.Decode(&objects); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		var some []string
		for _, o := range objects {
			for _, key := range incidental {
				strip(o, key)
			}
			b, _ := json.Marshal(o)
			some = append(some, string(b))
		}
		slices.Sort(some)
		lines = append(lines, some...)
	}
	return lines
}

// settings returns the sysctls of the pods' interfaces that relink-macvlan's ADD sets.
func settings(t *testing.T, netns string) []string {
	t.Helper()
	return strings.Split(fresh.Run(t, netns,
		"cd /proc/sys/net; grep . ipv4/conf/*/arp_notify ipv6/conf/*/disable_ipv6 ipv6/conf/*/ndisc_notify ipv6/conf/*/keep_addr_on_down"), "\n")
}

func strip(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, key)
		for _, value := range v {
			strip(value, key)
		}
	case []any:
		for _, value := range v {
			strip(value, key)
		}
	}
}

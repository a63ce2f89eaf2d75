package kernel

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// Linux itself has the addresses and answers. Whoever else asks for an address at the same time does not have it.
func TestResolveFindsTheNeighboursThatAnswer(t *testing.T) {
	w, neighbour := newLAN(t)
	fresh.IP(t, neighbour, "addr add 10.3.0.1/24 dev eth0")
	fresh.IP(t, neighbour, "addr add fd00:3::1/64 dev eth0 nodad")
	index := w.add(t, w.sandbox, bridge("eth0"))
	fresh.IP(t, w.path, "addr add 10.3.0.5/24 dev eth0")
	fresh.IP(t, w.path, "addr add fd00:3::5/64 dev eth0 nodad")
	four, six := Solicitation{addr("10.3.0.5"), addr("10.3.0.1")}, Solicitation{addr("fd00:3::5"), addr("fd00:3::1")}
	none := Solicitation{addr("10.3.0.5"), addr("10.3.0.77")}

	if _, err := w.sandbox.Resolve(t.Context(), index, []Solicitation{four}, patient); !errors.Is(err, ErrNoCarrier) {
		t.Errorf("a device that is down: %v", err)
	}
	fresh.IP(t, w.path, "link set eth0 up")
	for what, test := range map[string]struct {
		ask  []Solicitation
		want []netip.Addr
	}{
		"IPv4": {[]Solicitation{four}, []netip.Addr{four.Target}}, "IPv6": {[]Solicitation{six}, []netip.Addr{six.Target}},
		"without an address of its own": {[]Solicitation{{Target: six.Target}, {Target: four.Target}}, []netip.Addr{six.Target, four.Target}},
		"both":                          {[]Solicitation{six, four, six}, []netip.Addr{six.Target, four.Target}},
	} {
		if got, err := w.sandbox.Resolve(t.Context(), index, test.ask, patient); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v", what, got, err, test.want)
		}
	}
	// The neighbour asks for the address that nobody has, again and again.
	fresh.Run(t, neighbour, "ping -c 30 -i 0.02 -W 1 10.3.0.77 >/dev/null 2>&1 & sleep 0.05")
	if got, err := w.sandbox.Resolve(t.Context(), index, []Solicitation{none, {Target: addr("10.3.0.78")}}, ProbeOptions{Count: 5, Wait: 50 * time.Millisecond}); err != nil || len(got) > 0 {
		t.Errorf("an address that nobody has: %v, %v", got, err)
	}
	if _, err := w.sandbox.Resolve(t.Context(), index, []Solicitation{{four.Source, six.Target}}, patient); err == nil {
		t.Error("two families in one question are taken")
	}
	if _, err := w.sandbox.Resolve(t.Context(), 4711, []Solicitation{four}, patient); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
}

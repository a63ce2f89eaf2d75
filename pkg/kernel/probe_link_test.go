package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// A link without carrier does not count as a silent one.
func TestProbeOfALinkWithoutCarrier(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	fresh.IP(t, "", "link set lan0 down")
	in := []netip.Addr{addr("10.3.0.1"), addr("fd00:3::1")}
	if _, err := w.sandbox.Probe(t.Context(), index, in, patient); !errors.Is(err, ErrNoCarrier) {
		t.Errorf("error %v, want ErrNoCarrier", err)
	}
	w.wantDown(t, w.path, "eth0")
}

// A link that goes after the first probe does not count as a silent one either.
func TestProbeOfALinkThatGoes(t *testing.T) {
	for what, line := range map[string]string{
		"the parent's carrier":       "ip link set lan0 down",
		"the parent":                 "ip link set lan1 down",
		"the device":                 "nsenter --net=$sandbox ip link set eth0 down",
		"the device, and it is back": "nsenter --net=$sandbox sh -c 'ip link set eth0 down && ip link set eth0 up'",
	} {
		t.Run(what, func(t *testing.T) {
			w, _ := newLAN(t)
			index := w.add(t, w.sandbox, bridge("eth0"))
			var once sync.Once
			newHost(t, w, func([]byte) [][]byte {
				once.Do(func() { fresh.Run(t, "", strings.Replace(line, "$sandbox", w.path, 1)) })
				return nil
			})
			_, err := w.sandbox.Probe(t.Context(), index, []netip.Addr{addr("10.3.0.1"), addr("fd00:3::1")}, patient)
			if !errors.Is(err, ErrNoCarrier) {
				t.Errorf("error %v, want ErrNoCarrier", err)
			}
			// The probing ends and leaves the link down. The shell may then set it up again.
			if once.Do(func() { t.Error("the link did not go") }); !strings.Contains(line, " up") {
				w.wantDown(t, w.path, "eth0")
			}
		})
	}
}

func TestProbeRefusesWhatItCantDo(t *testing.T) {
	w, _ := newLAN(t)
	index := w.add(t, w.sandbox, bridge("eth0"))
	in := []netip.Addr{addr("10.3.0.2")}
	for _, a := range []netip.Addr{{}, addr("0.0.0.0"), addr("::"), addr("224.0.0.1"), addr("ff02::1"), addr("fe80::1%eth0"), addr("::ffff:10.3.0.2")} {
		if _, err := w.sandbox.Probe(t.Context(), index, append(in, a), patient); err == nil {
			t.Errorf("no error for address %s", a)
		}
	}
	for _, p := range []ProbeOptions{{}, {Count: 1}, {Wait: time.Second}, {Count: 1, Wait: -1}} {
		if _, err := w.sandbox.Probe(t.Context(), index, in, p); err == nil {
			t.Errorf("no error for %+v", p)
		}
	}
	w.wantDown(t, w.path, "eth0")
	if _, err := w.sandbox.Probe(t.Context(), 9999, in, patient); !errors.Is(err, ErrNoDevice) {
		t.Errorf("error %v, want ErrNoDevice", err)
	}
	if _, err := w.sandbox.Probe(t.Context(), 1, in, patient); !errors.Is(err, ErrUnsupported) {
		t.Errorf("error %v for lo, want ErrUnsupported", err)
	}
	fresh.IP(t, w.path, "link set eth0 up")
	if _, err := w.sandbox.Probe(t.Context(), index, in, patient); !errors.Is(err, errDeviceInUse) {
		t.Errorf("error %v for a device that is up, want errInUse", err)
	}
	if out := fresh.IP(t, w.path, "-o link show eth0"); !strings.Contains(out, ",UP") {
		t.Errorf("it was set down: %s", out)
	}
}

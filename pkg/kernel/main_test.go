package kernel

import (
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// fixture is a host with a veth pair, lan0 and lan1, and one sandbox.
type fixture struct {
	host, sandbox *Namespace
	path          string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	fresh.Run(t, "", "printf '%s\\n' 'link add lan0 up type veth peer name lan1' 'link set lan1 up' | ip -batch -")
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	w := &fixture{path: fresh.Sandbox(t)}
	w.host, w.sandbox = must(OpenHost())(t), must(Open(w.path))(t)
	t.Cleanup(func() {
		w.host.Close()
		w.sandbox.Close()
	})
	return w
}

// must returns a function that returns v, or ends the test if there is an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *fixture) index(t *testing.T, name string) int {
	t.Helper()
	return must(w.host.Index(name))(t)
}

func (w *fixture) capture(t *testing.T, ifName string) netstate.Interface {
	t.Helper()
	return must(Capture(w.host, w.sandbox, must(w.host.Devices())(t), ifName, CheckpointExtent))(t)
}

// bridge returns a macvlan in bridge mode with a MAC.
func bridge(name string) netstate.Link {
	return netstate.Link{
		Kind: netstate.KindMacvlan, Name: name, MAC: "02:00:00:00:00:01", Up: true,
		Macvlan: &netstate.Macvlan{Mode: "bridge"},
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

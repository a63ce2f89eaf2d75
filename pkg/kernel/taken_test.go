package kernel

import (
	"errors"
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// foreignDevice makes a device of the pod's own. asItWas fails the test if the device has changed. Nothing that is meant for
// the interface may reach the device.
func (w *fixture) foreignDevice(t *testing.T, name string) (index int, asItWas func()) {
	t.Helper()
	fresh.IP(t, w.path, "link add "+name+" type veth peer name peer")
	state := func() string {
		return fresh.Run(t, w.path, "ip -d -o link show dev "+name+"; ip -o addr show dev "+name+"; ip route show table all dev "+name+
			"; ip neigh show dev "+name+"; tc qdisc show dev "+name)
	}
	before := state()
	return must(w.sandbox.Index(name))(t), func() {
		t.Helper()
		if after := state(); after != before {
			t.Errorf("the stranger is\n%s\nand was\n%s", after, before)
		}
	}
}

func TestBuildLeavesWhoHasTheIndexAlone(t *testing.T) { eachWay(t, buildLeavesWhoHasTheIndexAlone) }

func buildLeavesWhoHasTheIndexAlone(t *testing.T) {
	for name, change := range map[string]func(*netstate.Interface){
		"at once":       func(*netstate.Interface) {},
		"with settings": func(i *netstate.Interface) { i.Settings = everything().Settings },
		"with an alias": func(i *netstate.Interface) { i.Link.Alias = "uplink" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			taken, asItWas := w.foreignDevice(t, "other")
			want := everything()
			want.Settings, want.Link.Index = nil, taken
			change(&want)
			built, err := Build(w.host, w.sandbox, w.index(t, "lan0"), want)
			if err != nil {
				t.Fatal(err)
			}
			asItWas()
			got := w.capture(t, "eth0")
			if diffs := netstate.Diff(want, got); len(diffs) > 0 {
				t.Errorf("differs: %v", diffs)
			}
			if got.Link.Index == taken || built.Index != got.Link.Index {
				t.Errorf("index %d, told %d: that of the stranger is %d", got.Link.Index, built.Index, taken)
			}
		})
	}
}

func TestBuildLeavesWhoHasTheNameAlone(t *testing.T) { eachWay(t, buildLeavesWhoHasTheNameAlone) }

func buildLeavesWhoHasTheNameAlone(t *testing.T) {
	w := newFixture(t)
	_, ofTheName := w.foreignDevice(t, "eth0")
	for name, index := range map[string]int{
		"a free index": 77, "its index": must(w.sandbox.Index("eth0"))(t), "that of a third one": must(w.sandbox.Index("peer"))(t),
	} {
		want := everything()
		want.Settings, want.Link.Index = nil, index
		if _, err := Build(w.host, w.sandbox, w.index(t, "lan0"), want); !errors.Is(err, ErrExists) {
			t.Errorf("%s: %v, want %v", name, err, ErrExists)
		}
		ofTheName()
	}
	if out := fresh.IP(t, w.path, "-o addr show dev peer"); out != "" {
		t.Errorf("the third one has %s", out)
	}
}

// The parent goes while an interface is being built on it.
func TestBuildOnAParentThatIsGoneTouchesNothing(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		w := newFixture(t)
		taken, asItWas := w.foreignDevice(t, "other")
		want := everything()
		want.Settings, want.Link.Index = nil, taken
		if _, err := Build(w.host, w.sandbox, 9999, want); err == nil {
			t.Error("built on nothing")
		}
		asItWas()
	})
}

func TestNameOf(t *testing.T) {
	w := newFixture(t)
	index, _ := w.foreignDevice(t, "other")
	if name, err := w.sandbox.NameOf(index); name != "other" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := w.sandbox.NameOf(9999); !errors.Is(err, ErrNoDevice) {
		t.Errorf("of none: %v, want %v", err, ErrNoDevice)
	}
}

// Without CAP_NET_RAW, the first answer may bind the socket, and the next ones may not.
func TestExists(t *testing.T) {
	w := newFixture(t)
	w.foreignDevice(t, "other")
	fresh.IP(t, w.path, "link property add dev other altname second")
	ask := func() {
		for name, want := range map[string]bool{
			"other": true, "second": true, "peer": true, "lo": true, "othe": false, "lan0": false, "": false, "other:1": false,
			"of-16-characters": false, "\x00": false, "other\x00": false, "..": false, "%d": false,
		} {
			if there, err := w.sandbox.Exists(name); there != want || err != nil {
				t.Errorf("%q: %v, %v", name, there, err)
			}
		}
	}
	ask()
	fresh.AsNobody(t, ask)
	if there, err := w.host.Exists("other"); there || err != nil {
		t.Errorf("in the host: %v, %v", there, err)
	}
	fresh.IP(t, w.path, "link del other")
	if there, err := w.sandbox.Exists("other"); there || err != nil {
		t.Errorf("deleted: %v, %v", there, err)
	}
}

func TestNameNow(t *testing.T) {
	w := newFixture(t)
	link := bridge("eth0")
	link.Index = 77
	must(Create(w.host, w.sandbox, w.index(t, "lan0"), link))(t)
	for _, test := range []struct{ change, want string }{
		{"link set eth0 alias same", "eth0"},
		{"link set eth0 name web0", "web0"},
		{"link add eth0 type veth peer name peer", "web0"},
		// It may be another device, because its MAC differs.
		{"link set web0 address 02:00:00:00:00:99", "eth0"},
		{"link del web0", "eth0"},
		{"link del eth0", "eth0"},
		{"link add web0 index 77 type veth peer name peer", "eth0"},
	} {
		fresh.IP(t, w.path, test.change)
		if got, err := w.sandbox.CurrentName(link); got != test.want || err != nil {
			t.Errorf("after %s: %q, %v, want %q", test.change, got, err, test.want)
		}
	}
}

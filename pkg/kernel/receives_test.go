package kernel

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// A device takes frames for an interface on it as long as that is up, and until its namespace has come to its end.
func TestReceives(t *testing.T) {
	w := newFixture(t)
	link := bridge("eth0")
	w.add(t, w.sandbox, link)
	lan0, lan1 := w.index(t, "lan0"), w.index(t, "lan1")
	for _, step := range []struct {
		name, do string
		index    int
		mac      string
		want     bool
	}{
		{"an interface that is down", "link set eth0 down", lan1, link.MAC, false},
		{"one that is up", "link set eth0 up", lan1, link.MAC, true},
		{"another device", "link set eth0 up", lan0, link.MAC, false},
		{"a device that is not there", "link set eth0 up", 9999, link.MAC, false},
		{"another MAC", "link set eth0 up", lan1, "02:00:00:00:0b:0b", false},
	} {
		fresh.IP(t, w.path, step.do)
		if got := must(w.host.Receives(step.index, step.mac))(t); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
	fresh.Remove(t, w.path)
	if !must(w.host.Receives(lan1, link.MAC))(t) {
		t.Error("the namespace is kept, and nothing is received for its interface")
	}
	w.sandbox.Close()
	for deadline := time.Now().Add(10 * time.Second); must(w.host.Receives(lan1, link.MAC))(t); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the namespace has no user, and its interface is still there")
		}
	}
}

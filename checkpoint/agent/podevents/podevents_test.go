package podevents_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/podevents"
	"github.com/relink-cni/relink/pkg/attachment"
)

var eth0 = attachment.Key{Network: "vlan3", ContainerID: "c1", IfName: "eth0"}

func TestOf(t *testing.T) {
	for _, test := range []struct {
		change agent.Change
		want   podevents.Event
	}{
		{
			agent.Change{Fate: agent.Lost, Base: "bond4", Device: "bond4"},
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: bond4 has gone. It will be restored when the device is back"},
		},
		{
			agent.Change{Fate: agent.Lost, Base: "bond4", Device: "bond4.3", For: time.Hour}, // A reminder has the same words.
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: bond4.3 on bond4 has gone. It will be restored when the device is back"},
		},
		{
			agent.Change{Fate: agent.Lost, Base: "bond4", Device: "eth1", Member: true},
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) may be cut off: eth1, a NIC of the bond bond4, has gone. It will be restored when the device is back"},
		},
		{
			agent.Change{Fate: agent.Lost, Device: "eth7"}, // A NIC that was moved into the pod.
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: eth7 has gone. It will be restored when the device is back"},
		},
		{
			agent.Change{Fate: agent.Back, Base: "bond4", For: 6149 * time.Millisecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 6.1s"},
		},
		{
			agent.Change{Fate: agent.Back, Base: "bond4", Member: true, For: 40*time.Millisecond + 300*time.Microsecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 40ms"},
		},
		{
			agent.Change{Fate: agent.Back, Base: "bond4", For: 3723400 * time.Millisecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 1h2m3s"},
		},
		{
			agent.Change{Fate: agent.Stuck, Base: "bond4", Device: "bond4", Tries: 5, Why: "eth0 is taken by another device"},
			podevents.Event{Warning: true, Reason: "InterfaceRestoreFailed", Message: "Network interface eth0 (network vlan3) cannot be restored (5 tries): eth0 is taken by another device. " +
				"The agent goes on trying. Run \"relink status\" on the node: it says what is wrong"},
		},
		{
			agent.Change{Fate: agent.Stuck, Base: "bond4", Device: "bond4", Why: "bond4 is a bridge"},
			podevents.Event{Warning: true, Reason: "InterfaceRestoreFailed", Message: "Network interface eth0 (network vlan3) cannot be restored: bond4 is a bridge. " +
				"The agent goes on trying. Run \"relink status\" on the node: it says what is wrong"},
		},
	} {
		test.change.Attachment = eth0
		if got := podevents.Of(test.change); got != test.want {
			t.Errorf("%+v:\n%+v, want\n%+v", test.change, got, test.want)
		}
	}
}

// recorder keeps the pods and reasons of events.
type recorder []string

func (r *recorder) Record(pod attachment.Pod, _ bool, reason, _ string) {
	*r = append(*r, pod.String()+" "+reason)
}

// Sandboxes without a pod have no events.
func TestTo(t *testing.T) {
	r := &recorder{}
	o := podevents.To(r)
	o.Woke(agent.FromTimer)
	o.Connected(time.Second)
	o.Changed([]agent.Change{
		{Attachment: eth0, Pod: attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, Fate: agent.Lost},
		{Attachment: eth0, Fate: agent.Lost},
		{Attachment: eth0, Pod: attachment.Pod{Namespace: "shop", Name: "web-1"}, Fate: agent.Back},
	})
	if want := []string{"shop/web-0 InterfaceLost", "shop/web-1 InterfaceRestored"}; !slices.Equal(*r, want) {
		t.Errorf("%q, want %q", *r, want)
	}
}

// docs/monitoring.md has all reasons and no others. It shows the real messages.
func TestTheDocumentHasEachReason(t *testing.T) {
	b, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| (Normal|Warning) \\| `(\\w+)` \\|").FindAllStringSubmatch(text, -1) {
		rows = append(rows, row[1]+" "+row[2])
	}
	want := []string{"Warning " + podevents.InterfaceLost, "Normal " + podevents.InterfaceRestored, "Warning " + podevents.InterfaceRestoreFailed}
	if !slices.Equal(rows, want) {
		t.Errorf("the document has %q, want %q", rows, want)
	}
	for _, c := range []agent.Change{
		{Attachment: eth0, Fate: agent.Lost, Base: "bond4", Device: "bond4"},
		{Attachment: eth0, Fate: agent.Back, Base: "bond4", For: 6100 * time.Millisecond},
	} {
		if e := podevents.Of(c); !strings.Contains(text, e.Reason) || !strings.Contains(text, "relink-agent  "+e.Message+"\n") {
			t.Errorf("the document does not show %s: %s", e.Reason, e.Message)
		}
	}
}

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
		change agent.InterfaceChange
		want   podevents.Event
	}{
		{
			agent.InterfaceChange{State: agent.Lost, Base: "bond4", Device: "bond4"},
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: bond4 has gone. It will be restored when the device is back"},
		},
		{
			agent.InterfaceChange{State: agent.Lost, Base: "bond4", Device: "bond4.3", Duration: time.Hour}, // A reminder has the same words.
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: bond4.3 on bond4 has gone. It will be restored when the device is back"},
		},
		{
			agent.InterfaceChange{State: agent.Lost, Base: "bond4", Device: "eth1", Member: true},
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) may be cut off: eth1, a NIC of the bond bond4, has gone. It will be restored when the device is back"},
		},
		{
			agent.InterfaceChange{State: agent.Lost, Device: "eth7"}, // A NIC that was moved into the pod.
			podevents.Event{Warning: true, Reason: "InterfaceLost", Message: "Network interface eth0 (network vlan3) is lost: eth7 has gone. It will be restored when the device is back"},
		},
		{
			agent.InterfaceChange{State: agent.Back, Base: "bond4", Duration: 6149 * time.Millisecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 6.1s"},
		},
		{
			agent.InterfaceChange{State: agent.Back, Base: "bond4", Member: true, Duration: 40*time.Millisecond + 300*time.Microsecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 40ms"},
		},
		{
			agent.InterfaceChange{State: agent.Back, Base: "bond4", Duration: 3723400 * time.Millisecond},
			podevents.Event{Reason: "InterfaceRestored", Message: "Network interface eth0 (network vlan3) is restored. It was lost for 1h2m3s"},
		},
		{
			agent.InterfaceChange{State: agent.Stuck, Base: "bond4", Device: "bond4", Tries: 5, Reason: "eth0 is taken by another device"},
			podevents.Event{Warning: true, Reason: "InterfaceRestoreFailed", Message: "Network interface eth0 (network vlan3) cannot be restored (5 tries): eth0 is taken by another device. " +
				"The agent goes on trying. Run \"relink status\" on the node: it says what is wrong"},
		},
		{
			agent.InterfaceChange{State: agent.Stuck, Base: "bond4", Device: "bond4", Reason: "bond4 is a bridge"},
			podevents.Event{Warning: true, Reason: "InterfaceRestoreFailed", Message: "Network interface eth0 (network vlan3) cannot be restored: bond4 is a bridge. " +
				"The agent goes on trying. Run \"relink status\" on the node: it says what is wrong"},
		},
	} {
		test.change.Attachment = eth0
		if got := podevents.NewEvent(test.change); got != test.want {
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
	o := podevents.NewObserver(r)
	o(agent.WakeTimer)
	o(agent.Connection(time.Second))
	o(agent.Changes{
		{Attachment: eth0, Pod: attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, State: agent.Lost},
		{Attachment: eth0, State: agent.Lost},
		{Attachment: eth0, Pod: attachment.Pod{Namespace: "shop", Name: "web-1"}, State: agent.Back},
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
	for _, c := range []agent.InterfaceChange{
		{Attachment: eth0, State: agent.Lost, Base: "bond4", Device: "bond4"},
		{Attachment: eth0, State: agent.Back, Base: "bond4", Duration: 6100 * time.Millisecond},
	} {
		if e := podevents.NewEvent(c); !strings.Contains(text, e.Reason) || !strings.Contains(text, "relink-agent  "+e.Message+"\n") {
			t.Errorf("the document does not show %s: %s", e.Reason, e.Message)
		}
	}
}

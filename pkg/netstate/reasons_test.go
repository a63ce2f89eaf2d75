package netstate

import (
	"net/netip"
	"testing"
)

func TestDiffSaysWhatDiffers(t *testing.T) {
	for name, test := range map[string]struct {
		start func() Interface
		have  func(*Interface)
	}{
		"address label":     {pod, func(i *Interface) { i.Addresses[0].Label = "eth0:1" }},
		"address broadcast": {pod, func(i *Interface) { i.Addresses[0].Broadcast = netip.MustParseAddr("10.3.0.255") }},
		"address flags":     {pod, func(i *Interface) { i.Addresses[0].Flags = 0x200 }},
		"route protocol":    {pod, func(i *Interface) { i.Routes[0].Protocol = 4 }},
		"route type":        {pod, func(i *Interface) { i.Routes[0].Type = 6 }},
		"NIC by bus address": {func() Interface { i := vlanPod(); i.Parents[0].NIC = NIC{BusAddress: "0000:00:03.0"}; return i },
			func(i *Interface) { i.Parents[0].NIC = NIC{BusAddress: "0000:00:04.0"} }},
	} {
		t.Run(name, func(t *testing.T) {
			want, have := test.start(), test.start()
			test.have(&have)
			for _, d := range Diff(want, have) {
				if d.Want == d.Live {
					t.Errorf("%s", d)
				}
			}
		})
	}
}

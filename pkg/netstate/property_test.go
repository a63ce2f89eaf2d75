package netstate

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func drawVLAN(t *rapid.T, label string) VLAN {
	return VLAN{
		ID:       rapid.IntRange(MinVLANID, MaxVLANID).Draw(t, label+" ID"),
		Protocol: rapid.SampledFrom([]string{Protocol8021Q, Protocol8021AD}).Draw(t, label+" protocol"),
	}
}

func drawMAC(t *rapid.T, label string) string {
	return fmt.Sprintf("02:00:00:00:00:%02x", rapid.IntRange(0, 255).Draw(t, label))
}

func drawBase(t *rapid.T) Device {
	switch rapid.IntRange(0, 2).Draw(t, "base") {
	case 0:
		return nic("eth1", drawMAC(t, "permanent MAC"), "0000:00:03.0")
	case 1:
		return bond("bond4", member("eth1"))
	}
	return Device{Kind: "team", Name: "team0"}
}

func drawLink(t *rapid.T) Link {
	l := Link{
		Kind: KindVLAN, Name: "eth0", Index: rapid.IntRange(1, 99).Draw(t, "index"),
		MAC: drawMAC(t, "MAC"), MTU: rapid.IntRange(MinMTU, 9000).Draw(t, "MTU"), Up: true,
	}
	if rapid.Bool().Draw(t, "macvlan") {
		l.Kind = KindMacvlan
		l.Macvlan = &Macvlan{Mode: rapid.SampledFrom(MacvlanModes).Draw(t, "mode"), BCQueueLen: rapid.Uint32Range(1, 9).Draw(t, "queue")}
		return l
	}
	v := drawVLAN(t, "link")
	l.VLAN = &v
	return l
}

// drawInterface returns an interface with every field set. Any two of its addresses differ in what makes them two
// addresses, and so do any two routes.
func drawInterface(t *rapid.T) Interface {
	i := Interface{Link: drawLink(t), ParentsInSandbox: rapid.Bool().Draw(t, "in the sandbox")}
	for n := range rapid.IntRange(0, 2).Draw(t, "VLAN parents") {
		i.Parents = append(i.Parents, vlanDevice(fmt.Sprintf("vlan%d", n), drawVLAN(t, "parent")))
	}
	i.Parents = append(i.Parents, drawBase(t))
	for n := range rapid.IntRange(0, 3).Draw(t, "addresses") {
		a := address(fmt.Sprintf("10.%d.0.5/24", n))
		a.Label = rapid.SampledFrom([]string{"", "eth0:1"}).Draw(t, "label")
		i.Addresses = append(i.Addresses, a)
	}
	for n := range rapid.IntRange(0, 3).Draw(t, "routes") {
		r := route(fmt.Sprintf("10.9.%d.0/24", n), rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "gateway"))
		r.Priority = rapid.Uint32Range(0, 2).Draw(t, "metric")
		i.Routes = append(i.Routes, r)
	}
	return i
}

// clone copies everything that the mutations below reach through a pointer.
func clone(i Interface) Interface {
	if m := i.Link.Macvlan; m != nil {
		c := *m
		i.Link.Macvlan = &c
	}
	if v := i.Link.VLAN; v != nil {
		c := *v
		i.Link.VLAN = &c
	}
	i.Parents = append([]Device(nil), i.Parents...)
	i.Addresses = append([]Address(nil), i.Addresses...)
	i.Routes = append([]Route(nil), i.Routes...)
	return i
}

// mutations each change one field of an interface. A mutation returns false if the interface does not have that field.
var mutations = map[Field]func(*rapid.T, *Interface) bool{
	FieldKind: func(_ *rapid.T, i *Interface) bool { i.Link.Kind = "ipvlan"; return true },
	FieldVLAN: func(_ *rapid.T, i *Interface) bool {
		if i.Link.VLAN == nil {
			return false
		}
		i.Link.VLAN.ID++
		return true
	},
	FieldMode: func(_ *rapid.T, i *Interface) bool {
		if i.Link.Macvlan == nil {
			return false
		}
		i.Link.Macvlan.Mode = "source"
		return true
	},
	FieldParent: func(t *rapid.T, i *Interface) bool {
		switch rapid.IntRange(0, 2).Draw(t, "what of the parents") {
		case 0:
			i.ParentsInSandbox = !i.ParentsInSandbox
		case 1:
			i.Parents = append([]Device{vlanDevice("more", v3)}, i.Parents...)
		default:
			n := rapid.IntRange(0, len(i.Parents)-1).Draw(t, "level")
			i.Parents[n] = Device{Kind: "bridge", Name: i.Parents[n].Name}
		}
		return true
	},
	FieldMAC: func(_ *rapid.T, i *Interface) bool { i.Link.MAC = "02:00:00:00:01:00"; return true },
	FieldMTU: func(_ *rapid.T, i *Interface) bool { i.Link.MTU++; return true },
	FieldUp:  func(_ *rapid.T, i *Interface) bool { i.Link.Up = false; return true },
	FieldAddress: func(t *rapid.T, i *Interface) bool {
		if len(i.Addresses) == 0 {
			return false
		}
		n := rapid.IntRange(0, len(i.Addresses)-1).Draw(t, "which address")
		if rapid.Bool().Draw(t, "gone") {
			i.Addresses = append(i.Addresses[:n], i.Addresses[n+1:]...)
		} else {
			i.Addresses[n].Flags++
		}
		return true
	},
	FieldRoute: func(t *rapid.T, i *Interface) bool {
		if len(i.Routes) == 0 {
			return false
		}
		n := rapid.IntRange(0, len(i.Routes)-1).Draw(t, "which route")
		if rapid.Bool().Draw(t, "gone") {
			i.Routes = append(i.Routes[:n], i.Routes[n+1:]...)
		} else {
			i.Routes[n].Gateway = netip.MustParseAddr("10.0.0.254")
		}
		return true
	},
}

func TestDiffWithItselfIsEmptyWhateverIsAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawInterface(t)
		have := clone(want)
		have.Addresses = append([]Address{address("192.0.2.1/32")}, have.Addresses...)
		have.Routes = append([]Route{route("192.0.2.0/24", "")}, have.Routes...)
		for _, diffs := range [][]Difference{Diff(want, want), Diff(want, have)} {
			if len(diffs) != 0 {
				t.Fatalf("Diff() = %v, want none", diffs)
			}
		}
	})
}

func TestDiffReportsExactlyTheOneFieldThatChanged(t *testing.T) {
	for field, mutate := range mutations {
		t.Run(string(field), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := drawInterface(t)
				have := clone(want)
				if !mutate(t, &have) {
					return
				}
				diffs := Diff(want, have)
				if len(diffs) != 1 || diffs[0].Field != field {
					t.Fatalf("Diff() = %+v, want one of %s", diffs, field)
				}
			})
		})
	}
}

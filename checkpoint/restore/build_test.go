package restore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/netstate"
)

type (
	devices = netstate.Devices
	stack   = []netstate.Device
)

// hardware returns NIC number n: its permanent MAC and its address on the bus.
func hardware(n int) netstate.NIC {
	return netstate.NIC{PermanentMAC: fmt.Sprintf("52:54:00:00:00:%02x", n), BusAddress: fmt.Sprintf("0000:00:%02x.0", n)}
}

// nic returns NIC number n under a name.
func nic(name string, n int) netstate.Device {
	return netstate.Device{Kind: netstate.KindNIC, Name: name, MTU: 1500, NIC: hardware(n)}
}

// deviceOfKind returns a device that has only a name and a kind.
func deviceOfKind(kind, name string) netstate.Device {
	return netstate.Device{Kind: kind, Name: name, MTU: 1500}
}

// bond returns a bond. Its members are the NICs of these numbers, recorded as eth<n>.
func bond(name string, members ...int) netstate.Device {
	d := deviceOfKind(netstate.KindBond, name)
	d.Bond = &netstate.Bond{Mode: "active-backup"}
	for _, n := range members {
		d.Bond.Members = append(d.Bond.Members, netstate.Member{Name: fmt.Sprintf("eth%d", n), NIC: hardware(n)})
	}
	return d
}

func vlan(name string, id int) netstate.Device {
	d := deviceOfKind(netstate.KindVLAN, name)
	d.VLAN = &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q}
	return d
}

func serviceVLAN(name string, id int) netstate.Device {
	d := vlan(name, id)
	d.VLAN.Protocol = netstate.Protocol8021AD
	return d
}

func mtu(d netstate.Device, bytes int) netstate.Device {
	d.MTU = bytes
	return d
}

// up returns a device that exists and is up, on the parent with index on, or on none.
func up(index int, d netstate.Device, on int) netstate.LiveDevice {
	return netstate.LiveDevice{Device: d, Index: index, ParentIndex: on, Up: true, Carrier: true}
}

// vfOf makes the device a VF of that PF.
func vfOf(pf string, d netstate.LiveDevice) netstate.LiveDevice {
	d.PF = pf
	return d
}

func down(index int, d netstate.Device, on int) netstate.LiveDevice {
	return netstate.LiveDevice{Device: d, Index: index, ParentIndex: on}
}

// enslaved returns a NIC that belongs to the bond with index to.
func enslaved(index int, d netstate.Device, to int) netstate.LiveDevice {
	return netstate.LiveDevice{Device: d, Index: index, MasterIndex: to, Up: true, Carrier: true}
}

// planResult has everything that a plan says: the steps with their reasons, and the result for each chain.
type planResult struct {
	Steps, Notes []string
	// On is the device on which each chain is to be built, or "" if none can be used.
	On []string
	// Problems leave a chain usable, those in Broken do not. A question mark follows a problem that time may solve.
	Problems, Broken []string
}

func (p *Problem) says() string {
	if p.Transient {
		return p.Reason + " ?"
	}
	return p.Reason
}

func withReasons(steps []Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.String()+": "+s.Reason)
	}
	return all
}

func planChains(p *ParentPlan, chains ...stack) planResult {
	var s planResult
	for _, c := range chains {
		r := p.chain(c)
		s.Notes = append(s.Notes, r.notes...)
		for _, problem := range r.lacking {
			s.Problems = append(s.Problems, problem.says())
		}
		if r.Problem != nil {
			s.Broken = append(s.Broken, r.Problem.says())
			s.On = append(s.On, "")
			continue
		}
		s.On = append(s.On, r.Parent.Name)
	}
	s.Steps = withReasons(p.steps)
	return s
}

type planTest struct {
	there  devices
	chains []stack
	mapped map[string]string
	// rebuild is the flag --rebuild-bond.
	rebuild bool
	want    planResult
}

type planTests map[string]planTest

func (tests planTests) run(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			got := planChains(NewParentPlan(test.there, recordedMembers(test.chains...), ParentOptions{Mapped: test.mapped, RebuildBond: test.rebuild}), test.chains...)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// recordedMembers returns the NICs in the chains.
func recordedMembers(chains ...stack) []netstate.Member {
	var all []netstate.Member
	for _, c := range chains {
		all = append(all, hardwareOf(c)...)
	}
	return all
}

func oneChain(parents ...netstate.Device) []stack { return []stack{parents} }
func list(lines ...string) []string               { return lines }

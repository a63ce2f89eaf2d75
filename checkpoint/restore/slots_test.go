package restore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

const slotA, slotB = "0000:3b:00.0", "0000:5e:00.0"

// atSlot returns the NIC in the slot, with that port.
func atSlot(slot, port string, d netstate.Device) netstate.Device {
	d.BusAddress, d.DevPort = slot, port
	return d
}

// switchPort returns a port of a switch. No such port has a MAC, and all are at one place.
func switchPort(name string) netstate.Device { return noMAC(atSlot("switch0", "0", nic(name, 0))) }

// nicWords describes the hardware in words.
func nicWords(n int, slot string) string {
	return hardwareWords("52:54:00:00:00:"+fmt.Sprintf("%02x", n), slot)
}

func hardwareWords(mac, slot string) string {
	if mac == "" {
		return fmt.Sprintf("(no permanent MAC, bus address %s)", slot)
	}
	return fmt.Sprintf("(permanent MAC %s, bus address %s)", mac, slot)
}

func exchangedNote(is, was string, n, recorded int) string {
	return fmt.Sprintf("%s is another card in the place of %s (bus address %s; permanent MAC 52:54:00:00:00:%02x, recorded 52:54:00:00:00:%02x)",
		is, was, slotA, n, recorded)
}

// Some records are of the new card, others of the old one. A restore was killed, or was limited to one sandbox, or an
// ADD came in between.
func TestPlanKnowsTheSlotOfAnExchangedCard(t *testing.T) {
	old, now := atSlot(slotA, "0", nic("eth0", 1)), atSlot(slotA, "0", nic("eth0", 9))
	uplink, rep := up(2, now, 0), noMAC(atSlot(slotA, "0", nic("rep0", 0)))
	planTests{
		"some records are of the new card": {
			there: devices{uplink}, chains: []stack{{old}, {now}},
			want: planResult{On: list("eth0", "eth0"), Notes: list(exchangedNote("eth0", "eth0", 9, 1))},
		},
		"some records are of the new card, the old have no port": {
			there: devices{uplink}, chains: []stack{{atSlot(slotA, "", nic("eth0", 1))}, {now}},
			want: planResult{On: list("", "eth0"), Broken: list("eth0 is another NIC now " +
				"(permanent MAC 52:54:00:00:00:09, bus address 0000:3b:00.0; recorded permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0): use it by --parent eth0=eth0 ?")},
		},
		"the card was exchanged twice": {
			there: devices{uplink}, chains: []stack{{old}, {atSlot(slotA, "0", nic("eth0", 2))}},
			want: planResult{On: list("eth0", "eth0"), Notes: list(exchangedNote("eth0", "eth0", 9, 1), exchangedNote("eth0", "eth0", 9, 2))},
		},
		"it has a representor": {
			there: devices{uplink, up(3, rep, 0)}, chains: oneChain(old),
			want: planResult{On: list("eth0"), Notes: list(exchangedNote("eth0", "eth0", 9, 1))},
		},
		"it has a representor that a record names, and some are of the new card": {
			there: devices{up(3, rep, 0), uplink}, chains: []stack{{rep}, {now}, {old}},
			want: planResult{On: list("rep0", "eth0", "eth0"), Notes: list(exchangedNote("eth0", "eth0", 9, 1))},
		},
		"it has a representor, and was renamed since some records are of the new card": {
			there: devices{up(2, atSlot(slotA, "0", nic("enp1", 9)), 0), up(3, rep, 0)}, chains: []stack{{old}, {now}},
			want: planResult{On: list("enp1", "enp1"), Notes: list(exchangedNote("enp1", "eth0", 9, 1),
				"eth0 is now enp1 (same permanent MAC 52:54:00:00:00:09)")},
		},
		"the new card was in another slot": {
			there: devices{uplink}, chains: []stack{{old}, {atSlot(slotB, "0", nic("eth1", 9))}},
			want: planResult{On: list("", "eth0"), Notes: list("eth1 is now eth0 (same permanent MAC 52:54:00:00:00:09)"), Broken: list(
				"the recorded eth0 " + nicWords(1, slotA) + " is not there; what is eth0 now is the recorded eth1 " + nicWords(9, slotB) +
					": to use it for eth0 as well, say --parent eth0=eth0 ?")},
		},
		"the new card was in another slot under the same name": {
			there: devices{uplink}, chains: []stack{{old}, {atSlot(slotB, "0", nic("eth0", 9))}},
			want: planResult{On: list("", "eth0"), Broken: list(
				"the recorded eth0 " + nicWords(1, slotA) + " is not there; what is eth0 now is the recorded eth0 " + nicWords(9, slotB) +
					": to use it for eth0 as well, say --parent eth0=eth0 ?")},
		},
		"cards exchanged their slots": {
			there:  devices{up(2, atSlot(slotB, "0", nic("eth0", 1)), 0), up(3, atSlot(slotA, "0", nic("eth1", 2)), 0)},
			chains: []stack{{old}, {atSlot(slotB, "0", nic("eth1", 2))}}, want: planResult{On: list("eth0", "eth1")},
		},
		"it moved to another slot, and some records know": {
			there:  devices{up(2, atSlot(slotB, "0", nic("eth0", 1)), 0)},
			chains: []stack{{old}, {atSlot(slotB, "0", nic("eth0", 1))}}, want: planResult{On: list("eth0", "eth0")},
		},
		"the operator says what one of two is": {
			there:  devices{up(2, atSlot(slotA, "0", nic("eth1", 9)), 0)},
			chains: []stack{{atSlot(slotA, "0", nic("eth0", 1))}, {atSlot(slotA, "0", nic("eth1", 2))}},
			mapped: map[string]string{"eth0": "eth1"},
			want: planResult{On: list("eth1", ""), Notes: list("eth0 is eth1, as told by --parent"), Broken: list(
				"the recorded eth1 " + nicWords(2, slotA) + " is not there; what is eth1 now is the recorded eth0 " + nicWords(1, slotA) +
					": to use it for eth1 as well, say --parent eth1=eth1 ?")},
		},
		"the operator says that one of two is elsewhere": {
			there:  devices{up(2, atSlot(slotA, "0", nic("eth1", 9)), 0), up(3, nic("eth7", 7), 0)},
			chains: []stack{{atSlot(slotA, "0", nic("eth0", 1))}, {atSlot(slotA, "0", nic("eth1", 2))}},
			mapped: map[string]string{"eth0": "eth7"},
			want:   planResult{On: list("eth7", "eth1"), Notes: list("eth0 is eth7, as told by --parent", exchangedNote("eth1", "eth1", 9, 2))},
		},
	}.run(t)
}

// Ports of a switch and representors have no MAC, and many of them are at one place.
func TestPlanTellsNICsAtOnePlaceApartByName(t *testing.T) {
	lan0, lan1 := up(2, switchPort("lan0"), 0), up(3, switchPort("lan1"), 0)
	sw := hardwareWords("", "switch0")
	either := func(wanted, live, rival string) string {
		return fmt.Sprintf("the recorded %s %s could be what is now %s %[2]s, and so could the recorded %[4]s %[2]s: say which by --parent %[1]s=DEVICE ?", wanted, sw, live, rival)
	}
	oldPort := func(name string) netstate.Device { return noMAC(atSlot(slotA, "", nic(name, 0))) }
	planTests{
		"all are there": {
			there: devices{lan0, lan1}, chains: []stack{{switchPort("lan0")}, {switchPort("lan1")}}, want: planResult{On: list("lan0", "lan1")},
		},
		"one of them is recorded": {there: devices{lan0, lan1}, chains: oneChain(switchPort("lan1")), want: planResult{On: list("lan1")}},
		"one is gone": {
			there: devices{lan1}, chains: []stack{{switchPort("lan0")}, {switchPort("lan1")}},
			want: planResult{On: list("", ""), Broken: list(either("lan0", "lan1", "lan1"), either("lan1", "lan1", "lan0"))},
		},
		"one has another name": {
			there: devices{lan0, up(3, switchPort("eth5"), 0)}, chains: []stack{{switchPort("lan0")}, {switchPort("lan1")}},
			want: planResult{On: list("", ""), Broken: list(either("lan0", "lan0", "lan1"),
				"the recorded lan1 "+sw+" could be what is now lan0 "+sw+" or eth5 "+sw+": say which by --parent lan1=DEVICE ?")},
		},
		"a bond of them": {
			there: devices{up(4, bond("bond4"), 0), lan0, lan1}, chains: oneChain(bondOf(switchPort("lan0"), switchPort("lan1"))),
			want: planResult{On: list("bond4"), Steps: list(
				"enslave lan0 to bond4: it was a member of bond4 when recorded and is free",
				"enslave lan1 to bond4: it was a member of bond4 when recorded and is free")},
		},
		"one is in its bond, the other is gone": {
			there: devices{up(4, bond("bond4"), 0), enslaved(3, switchPort("lan1"), 4)}, chains: oneChain(bondOf(switchPort("lan0"), switchPort("lan1"))),
			want: planResult{On: list("bond4"), Problems: list("bond4 lacks its member: " + either("lan0", "lan1", "lan1"))},
		},
		"ports of a card, of records without ports": {
			there:  devices{up(2, noMAC(atSlot(slotA, "0", nic("eth0", 0))), 0), up(3, noMAC(atSlot(slotA, "1", nic("eth1", 0))), 0)},
			chains: []stack{{oldPort("eth1")}, {oldPort("eth0")}}, want: planResult{On: list("", ""), Broken: list(
				"eth1 is another NIC now (no permanent MAC, bus address 0000:3b:00.0, port 1; recorded no permanent MAC, bus address 0000:3b:00.0): use it by --parent eth1=eth1 ?",
				"eth0 is another NIC now (no permanent MAC, bus address 0000:3b:00.0; recorded no permanent MAC, bus address 0000:3b:00.0): use it by --parent eth0=eth0 ?")},
		},
		"a NIC that tells nothing has the name of one that has another now": {
			there: devices{up(2, switchPort("lan0"), 0)}, chains: []stack{{deviceOfKind(netstate.KindNIC, "lan0")}, {switchPort("lan1")}},
			want: planResult{On: list("", "lan0"), Notes: list("lan1 is now lan0 (same bus address switch0)"), Broken: list(
				"the recorded lan0 (no permanent MAC, no bus address) is not there; what is lan0 now is the recorded lan1 " + sw +
					": to use it for lan0 as well, say --parent lan0=lan0 ?")},
		},
		"a record that tells nothing is of the NIC that another tells of": {
			there: devices{lan0}, chains: []stack{{deviceOfKind(netstate.KindNIC, "lan0")}, {switchPort("lan0")}}, want: planResult{On: list("lan0", "lan0")},
		},
	}.run(t)
}

// Two NICs have the same permanent MAC.
func TestPlanTellsNICsWithOneMACApartByPlace(t *testing.T) {
	eth0, eth1 := atSlot(slotA, "0", nic("eth0", 1)), atSlot(slotB, "0", nic("eth1", 1))
	const gone = "the recorded eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there; what is eth1 now is " +
		"the recorded eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:5e:00.0): to use it for eth0 as well, say --parent eth0=eth1 ?"
	planTests{
		"one is gone": {
			there: devices{up(3, eth1, 0)}, chains: []stack{{eth0}, {eth1}}, want: planResult{On: list("", "eth1"), Broken: list(gone)},
		},
		"one is gone from a bond": {
			there: devices{up(4, bond("bond4"), 0), down(3, eth1, 0)}, chains: oneChain(bondOf(eth0, eth1)),
			want: planResult{On: list("bond4"), Problems: list("bond4 lacks its member: " + gone),
				Steps: list("enslave eth1 to bond4: it was a member of bond4 when recorded and is free")},
		},
		"they have each other's names": {
			there:  devices{up(2, atSlot(slotA, "0", nic("eth1", 1)), 0), up(3, atSlot(slotB, "0", nic("eth0", 1)), 0)},
			chains: []stack{{eth0}, {eth1}},
			want: planResult{On: list("eth1", "eth0"), Notes: list(
				"eth0 is now eth1 (same permanent MAC 52:54:00:00:00:01)", "eth1 is now eth0 (same permanent MAC 52:54:00:00:00:01)")},
		},
		"one of a bond has the other's name": {
			there:  devices{up(4, bond("bond4"), 0), enslaved(2, atSlot(slotB, "0", nic("eth0", 1)), 4), down(3, atSlot(slotA, "0", nic("eth1", 1)), 0)},
			chains: oneChain(bondOf(eth0)),
			want:   planResult{On: list("bond4"), Steps: list("enslave eth1 to bond4: it was a member of bond4 as eth0 when recorded and is free")},
		},
		"one card was exchanged": {
			there: devices{up(2, atSlot(slotA, "0", nic("eth0", 9)), 0), up(3, eth1, 0)}, chains: []stack{{eth0}, {eth1}},
			want: planResult{On: list("eth0", "eth1"), Notes: list(exchangedNote("eth0", "eth0", 9, 1))},
		},
		"one is there, in a third slot": {
			there: devices{up(3, atSlot("0000:00:05.0", "0", nic("eth5", 1)), 0)}, chains: []stack{{eth0}, {eth1}},
			want: planResult{On: list("", ""), Broken: list(
				"the recorded eth0 "+nicWords(1, slotA)+" could be what is now eth5 "+nicWords(1, "0000:00:05.0")+", and so could the recorded eth1 "+nicWords(1, slotB)+": say which by --parent eth0=DEVICE ?",
				"the recorded eth1 "+nicWords(1, slotB)+" could be what is now eth5 "+nicWords(1, "0000:00:05.0")+", and so could the recorded eth0 "+nicWords(1, slotA)+": say which by --parent eth1=DEVICE ?")},
		},
	}.run(t)
}

// A record without a port is not at the place of any port.
func TestPlanDoesNotGuessThePort(t *testing.T) {
	other := up(3, atSlot(slotA, "1", nic("eth1", 7)), 0)
	old, missing := atSlot(slotA, "", nic("eth0", 1)), "eth0 "+nicWords(1, slotA)+" is not there ?"
	planTests{
		"of its MAC": {
			there: devices{other}, chains: []stack{{old}, {atSlot(slotA, "0", nic("eth0", 1))}},
			want: planResult{On: list("", ""), Broken: list(missing, missing)},
		},
		"of its MAC, under another name": {
			there: devices{other}, chains: []stack{{old}, {atSlot(slotA, "0", nic("enp1", 1))}},
			want: planResult{On: list("", ""), Broken: list(missing, "enp1 "+nicWords(1, slotA)+" is not there ?")},
		},
		"of its name, where it has no MAC": {
			there: devices{other}, chains: []stack{{noMAC(old)}, {noMAC(atSlot(slotA, "0", nic("eth0", 1)))}},
			want: planResult{On: list("", ""), Broken: list("eth0 "+hardwareWords("", slotA)+" is not there ?", "eth0 "+hardwareWords("", slotA)+" is not there ?")},
		},
		"of a bond's member": {
			there:  devices{up(4, bond("bond4"), 0), down(3, atSlot(slotA, "1", nic("eth9", 7)), 0)},
			chains: []stack{{vlan("bond4.3", 3), bondOf(old)}, {atSlot(slotA, "0", nic("eth0", 1))}},
			want: planResult{On: list("bond4.3", ""), Broken: list(missing), Problems: list("bond4 lacks its member: " + missing),
				Steps: list("create bond4.3, VLAN 3 on bond4: it is missing")},
		},
		"of its MAC, which two ports have: the MAC decides": {
			there: devices{other}, chains: []stack{{atSlot(slotA, "0", nic("eth0", 7))}, {atSlot(slotA, "1", nic("eth1", 7))}, {atSlot(slotA, "", nic("eth5", 7))}},
			want: planResult{On: list("", "eth1", "eth1"), Notes: list("eth5 is now eth1 (same permanent MAC 52:54:00:00:00:07)"), Broken: list(
				"the recorded eth0 " + nicWords(7, slotA) + " is not there; what is eth1 now is the recorded eth1 " +
					"(permanent MAC 52:54:00:00:00:07, bus address 0000:3b:00.0, port 1): to use it for eth0 as well, say --parent eth0=eth1 ?")},
		},
	}.run(t)
}

// The NICs of pods that are gone are free for live pods.
func TestNICsOfSandboxesThatAreGoneAreNobodys(t *testing.T) {
	record := func(id, path string, n int) checkpoint.Record {
		sandbox := must(kernel.Open(path))(t)
		defer sandbox.Close()
		i := pod()
		i.Parents = stack{nic("eth0", n)}
		return checkpoint.Record{Attachment: attachment.Key{ContainerID: id, IfName: "eth0"}, Namespace: sandbox.Identity(), Interface: i}
	}
	gone := fresh.Sandbox(t)
	records := []checkpoint.Record{record("gone", gone, 1), record("living", fresh.Sandbox(t), 2)}
	fresh.Remove(t, gone)
	r := &restoreRun{namespaces: namespaces{moved: map[attachment.Namespace]string{}}}
	found, rest := r.namespaces.locate(t.Context(), records)
	all, err := r.allNICs(t.Context(), found, rest)
	if err != nil || len(all) != 1 || all[0].NIC != hardware(2) {
		t.Errorf("NICs %+v, %v", all, err)
	}
	if len(rest) != 1 || rest[0].outcome.Attachment.ContainerID != "gone" || rest[0].outcome.State != SandboxGone {
		t.Errorf("not looked at: %+v", rest)
	}
}

// A sandbox that nobody can look at fails. Nobody waits for it, and no other pod gets its NIC.
func TestASandboxThatCannotBeLookedAtHoldsNobodyUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(path, path); err != nil {
		t.Fatal(err)
	}
	i := pod()
	i.Parents = stack{nic("up7", 7)}
	identity := must(kernel.OpenHost())(t)
	defer identity.Close()
	namespace := identity.Identity()
	namespace.Path = path
	record := checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, Namespace: namespace, Interface: i, Writer: "test",
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
	}
	store := checkpoint.OpenStore(t.TempDir())
	if err := store.Save(record); err != nil {
		t.Fatal(err)
	}
	report := must(Run(t.Context(), Options{Store: store, Wait: 10 * time.Second}))(t)
	if len(report.Outcomes) != 1 || report.Outcomes[0].State != change.Failed || !strings.Contains(report.Outcomes[0].Reason, "symbolic links") {
		t.Errorf("attachments: %+v", report.Outcomes)
	}
	if report.WaitDuration >= pollInterval || len(report.Problems) > 0 {
		t.Errorf("waited %v, problems %q", report.WaitDuration, report.Problems)
	}
	r := &restoreRun{namespaces: namespaces{moved: map[attachment.Namespace]string{}}}
	found, rest := r.namespaces.locate(t.Context(), []checkpoint.Record{record})
	if all := must(r.allNICs(t.Context(), found, rest))(t); len(all) != 1 || all[0].NIC != hardware(7) {
		t.Errorf("NICs %+v", all)
	}
}

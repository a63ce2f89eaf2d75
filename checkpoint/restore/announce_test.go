package restore

import (
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Before an interface is changed, its record says what is owed, unless the parent's old index says so: a capture after a kill
// keeps that alone, and not the index of a member.
func TestOwedIsNotedBeforeAChange(t *testing.T) {
	chain := func(bond, member int) []netstate.Device {
		return []netstate.Device{{Name: "bond0", Kind: netstate.KindBond, MTU: 1500, IfIndex: bond, Bond: &netstate.Bond{
			Mode: "active-backup", Members: []netstate.Member{{Name: "eth0", IfIndex: member}},
		}}}
	}
	for name, test := range map[string]struct {
		found []netstate.Device
		steps []Step
		want  bool
	}{
		"the member is new, and an address is missing": {chain(5, 9), []Step{{Action: AddAddress}}, true},
		"only the member is new":                       {chain(5, 9), nil, false},
		"the bond is new":                              {chain(7, 9), []Step{{Action: Create}}, false},
		"an address is missing":                        {chain(5, 2), []Step{{Action: AddAddress}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			store := checkpoint.OpenStore(t.TempDir())
			r := checkpoint.Record{
				Attachment: attachment.Key{Network: "lan", ContainerID: "c0", IfName: "eth0"}, Namespace: attachment.Namespace{Path: "/run/netns/c0", BootID: "b", Inode: 1},
				Interface: netstate.Interface{
					Link:      netstate.Link{Name: "eth0", Kind: netstate.KindMacvlan, MAC: "02:00:00:00:00:01", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
					Parents:   chain(5, 2),
					Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("192.0.2.2/24")}},
				},
			}
			if err := store.Save(r); err != nil {
				t.Fatal(err)
			}
			w := &attachmentRestore{node: &Restorer{store: store}, record: r, state: &attachmentState{foundParents: test.found}, outcome: &Outcome{Steps: test.steps}}
			w.noteOwed()
			saved, err := store.Load("c0", "eth0")
			if err != nil || saved.AnnouncementOwed != test.want {
				t.Errorf("owed: %v, %v", saved.AnnouncementOwed, err)
			}
		})
	}
}

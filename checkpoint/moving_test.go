package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

func TestNotesOfMoves(t *testing.T) {
	s := OpenStore(t.TempDir())
	note := func(id, ifName string) Move {
		return Move{
			Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: ifName}, Namespace: attachment.Namespace{Path: "/run/netns/a", Cookie: 7}, State: MoveBegun,
			OldParents: []netstate.Device{{Kind: netstate.KindNIC, Name: "eth0", MTU: 1500}}, NewParents: []netstate.Device{{Kind: netstate.KindNIC, Name: "eth2", MTU: 1500}}, Index: 2,
		}
	}
	want := []Move{note("a", "eth0"), note("a", "net1"), note("b", "eth0")}
	for _, m := range want {
		for range 2 { // The second one takes the place of the first.
			if err := s.SaveMove(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := s.Moves()
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Error(diff, err)
	}
	// The notes are no sandboxes, and no checkpoints.
	if records, unreadable, err := s.List(); len(records)+len(unreadable) > 0 || err != nil {
		t.Error(records, unreadable, err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir(), ".moving", "a", "net1.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Moves(); len(all) != 2 || !errors.Is(err, ErrTorn) || !strings.Contains(err.Error(), "remove the file") {
		t.Error(all, err)
	}
	for range 2 { // None is no error.
		if err := s.ForgetMove(attachment.Key{ContainerID: "b", IfName: "eth0"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.LoadMove(attachment.Key{ContainerID: "b", IfName: "eth0"}); !errors.Is(err, ErrNoCheckpoint) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir(), ".moving", "b")); !os.IsNotExist(err) {
		t.Error("an empty directory is left", err)
	}
}

package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// saveIn completes the record, which only has parents so far, and saves it for that namespace.
func saveIn(t *testing.T, store *checkpoint.Store, r checkpoint.Record, n attachment.Namespace) {
	t.Helper()
	r.Namespace, r.Writer, r.CapturedAt = n, "relink-macvlan", time.Now()
	r.Interface.Link = netstate.Link{
		Kind: netstate.KindMacvlan, Name: r.Attachment.IfName, MAC: "52:54:00:00:00:09", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"},
	}
	if err := store.Save(r); err != nil {
		t.Fatal(err)
	}
}

// The arguments in the environment are of an attachment. A GC is of none, and reads none.
func TestGCReadsNoArguments(t *testing.T) {
	config := fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "lan", "type": "x", "checkpointDir": %q, "cni.dev/valid-attachments": []}`, t.TempDir())
	args := &skel.CmdArgs{Args: "no pair", StdinData: config}
	for _, p := range []Plugin{Interface(netconf.MacvlanName, netstate.KindMacvlan, netconf.Macvlan), Chained(netconf.CheckpointName, netconf.Checkpoint)} {
		if err := p.GC(args); err != nil {
			t.Errorf("%s: %s", p.Name, codeAndText(err))
		}
	}
}

// GC cannot lock a sandbox that somebody else works on. Its error names the holder and asks for another try. GC forgets
// the other sandboxes.
func TestGCOfABusySandboxIsToBeTriedAgain(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	for _, id := range []string{"busy", "free"} {
		r := recordOn("lan", eth0)
		r.Attachment.ContainerID = id
		saveIn(t, store, r, attachment.Namespace{Path: "/run/netns/" + id, BootID: "b", Device: 4, Inode: 4026532287})
	}
	unlock, err := store.Lock(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	kept, _, err := forgetInvalid(ctx, store, "lan", map[types.GCAttachment]bool{})
	if text := codeAndText(err); !slices.Equal(kept, []types.GCAttachment{{ContainerID: "busy", IfName: "eth0"}}) || !strings.HasPrefix(text, "11: ") || !strings.Contains(text, "lock sandbox busy: in use by ") || !strings.Contains(text, "eth0") {
		t.Errorf("kept %v, says %s", kept, text)
	}
	records, unreadable, err := store.List()
	if err != nil || len(records) != 1 || len(unreadable) > 0 || records[0].Attachment.ContainerID != "busy" {
		t.Errorf("left: %+v %v %v", records, unreadable, err)
	}
}

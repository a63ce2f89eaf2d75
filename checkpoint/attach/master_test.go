package attach_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

const bondFirst = `, "master": ["bond4", "lan0"]`

// onBond rewrites the checkpoint of c1: its parent is now bond4, with the member lan0.
func (n *node) onBond(t *testing.T, change func(*checkpoint.Record)) {
	t.Helper()
	r, err := n.Store.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	r.Interface.Parents = []netstate.Device{{
		Kind: netstate.KindBond, Name: "bond4", MAC: r.Interface.Parents[0].MAC, MTU: 1500,
		Bond: &netstate.Bond{Mode: "802.3ad", Members: []netstate.Member{{Name: "lan0"}}},
	}}
	change(&r)
	if err := n.Store.Save(r); err != nil {
		t.Fatal(err)
	}
}

// A live attachment waits for the first master of the list. Meanwhile no other one is built on the next master, and the
// attempt leaves nothing behind.
func TestAddWaitsForTheFirstMaster(t *testing.T) {
	n, a, b := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", a)
	made, err := n.Store.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*checkpoint.Record)
		code   int
		msg    string
	}{
		"its network's": {func(*checkpoint.Record) {}, 11,
			"master bond4 is missing, and lan0 is not taken in its place: 1 attachment on bond4 by checkpoint (eth0 of default/c1)"},
		"another's":                 {func(r *checkpoint.Record) { r.Attachment.Network = "other" }, 11, "relink restore --parent OLD=NEW"},
		"of a sandbox that is gone": {func(r *checkpoint.Record) { r.Namespace.Path += ".gone"; r.Namespace.Cookie++ }, 0, ""},
		"of one at another path":    {func(r *checkpoint.Record) { r.Namespace.Path += ".gone" }, 11, "relink restore --parent OLD=NEW"},
		"of a stranger's namespace": {func(r *checkpoint.Record) { r.Namespace.Inode++ }, 0, ""},
		"of an earlier boot":        {func(r *checkpoint.Record) { r.Namespace.BootID = "b" }, 0, ""},
	} {
		if err := n.Store.Save(made); err != nil {
			t.Fatal(err)
		}
		n.onBond(t, test.change)
		code, msg, stderr := n.code(t, "ADD", "c2", b, bondFirst)
		expectCode(t, name, code, msg, test.code, test.msg)
		if stderr != "" {
			t.Errorf("%s: %s", name, stderr)
		}
		if out := fresh.IP(t, b, "-o link"); strings.Contains(out, "eth0") != (code == 0) {
			t.Errorf("%s: %s", name, out)
		}
		n.mustCall(t, "DEL", "c2", b)
	}
}

// After a restore has moved attachments, their records show the node as it is now.
func TestAddFollowsAttachmentsThatWereMovedForGood(t *testing.T) {
	n, a, b := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", a)
	n.onBond(t, func(*checkpoint.Record) {})
	code, msg, _ := n.code(t, "ADD", "c2", b, bondFirst)
	expectCode(t, "before", code, msg, 11, "--parent OLD=NEW")
	cmd := n.restoreCommand()
	cmd.Args = append(cmd.Args, "--parent", "bond4=lan0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if code, msg, _ := n.code(t, "ADD", "c2", b, bondFirst); code != 0 {
		t.Errorf("after: %s", msg)
	}
}

// A checkpoint that cannot be read keeps no pod from starting. relink looks for one only if the first master is
// missing.
func TestUnreadableCheckpointSpeaksAgainstNoMaster(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	dir := filepath.Join(n.Store.Dir(), "torn")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "eth0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for master, want := range map[string]string{
		`, "master": ["lan0", "bond4"]`: "",
		bondFirst:                       "relink-macvlan: lan0 is taken in the place of bond4, as no checkpoint speaks against it: 1 can't be read, such as: ",
	} {
		code, msg, stderr := n.code(t, "ADD", "c1", netns, master)
		expectCode(t, master, code, msg, 0, "")
		if !strings.HasPrefix(stderr, want) || want == "" && stderr != "" {
			t.Errorf("%s: said %q", master, stderr)
		}
		n.mustCall(t, "DEL", "c1", netns)
	}
}

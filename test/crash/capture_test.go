package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// remember writes into the CNI cache whose interface this is, as a runtime does.
func (p *pod) remember(t *testing.T) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": p.id, "ifName": p.ifName, "networkName": "lan", "netns": p.netns, "config": []byte(`{}`),
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.id}},
	})
	must(t, err)
	dir := filepath.Join(p.cache(), "results")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, p.id+"-"+p.ifName), b, 0o600))
}

// records returns the records in the store, without what differs between two runs.
func (n *node) records(t *testing.T) map[string]checkpoint.Record {
	t.Helper()
	records, unreadable, err := n.store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(unreadable, err)
	}
	byID := map[string]checkpoint.Record{}
	for _, r := range records {
		r.CapturedAt = time.Time{}
		byID[r.Attachment.ContainerID+" "+r.Attachment.IfName] = r
	}
	return byID
}

func sameRecords(t *testing.T, want, got map[string]checkpoint.Record) {
	t.Helper()
	if diff := cmp.Diff(encoded(t, want), encoded(t, got)); diff != "" {
		t.Errorf("other records:\n%s", diff)
	}
}

func encoded(t *testing.T, records map[string]checkpoint.Record) map[string]string {
	t.Helper()
	all := map[string]string{}
	for id, r := range records {
		b, err := checkpoint.Encode(r)
		must(t, err)
		all[id] = string(b)
	}
	return all
}

// stockNode returns a node with one pod of relink's and three pods of the reference plugin alone. The runtime's cache
// names two of these, and does not know the third.
func stockNode(t *testing.T) (n *node, stock []*pod) {
	n = newNode(t)
	must(t, n.newPod(t, "own", false).add())
	for i := range 3 {
		p := n.newPod(t, fmt.Sprintf("c%d", i), true)
		_, err := output(p.plugin("macvlan", "ADD", ""))
		must(t, err)
		if i > 0 {
			p.remember(t)
		}
		stock = append(stock, p)
	}
	return n, stock
}

// The next capture finishes a killed one. A killed capture harms no existing checkpoint.
func TestCaptureKilledAtEveryStep(t *testing.T) {
	n, stock := stockNode(t)
	own := n.records(t)
	n.says(t, 0, "capture")
	want := n.records(t)
	if len(want) != len(own)+len(stock) {
		t.Fatalf("captured %v", want)
	}
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			for _, r := range want {
				if id := r.Attachment.ContainerID; id != "own" {
					must(t, os.RemoveAll(filepath.Join(n.store.Dir(), id)))
				}
			}
			return n.command("capture")
		},
		after: func(t *testing.T) {
			some := n.records(t)
			for id := range some {
				if _, ok := want[id]; !ok {
					t.Errorf("a checkpoint of nobody: %s", id)
				}
			}
			sameRecords(t, own, map[string]checkpoint.Record{"own eth0": some["own eth0"]})
			n.says(t, 0, "capture")
			sameRecords(t, want, n.records(t))
			n.nothingTemporary(t)
			n.says(t, 0, "check")
		},
	}.killAtEveryStep(t)
}

// A killed refresh leaves each checkpoint either as it was or in its new form. The next refresh finishes the work.
func TestRefreshKilledAtEveryStep(t *testing.T) {
	n, stock := stockNode(t)
	n.says(t, 0, "capture")
	versions := map[string]map[string]checkpoint.Record{}
	set := func(t *testing.T, mtu string) {
		for _, p := range stock {
			fresh.IP(t, p.netns, "link set eth0 mtu "+mtu)
		}
	}
	for _, mtu := range []string{"1500", "1400"} {
		set(t, mtu)
		n.says(t, 0, "capture --refresh")
		versions[mtu] = n.records(t)
	}
	was, is := "1500", "1400"
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			was, is = is, was
			set(t, is)
			return n.command("capture --refresh")
		},
		after: func(t *testing.T) {
			for id, r := range n.records(t) {
				sameRecords(t, map[string]checkpoint.Record{id: versions[fmt.Sprint(r.Interface.Link.MTU)][id]}, map[string]checkpoint.Record{id: r})
			}
			n.says(t, 0, "capture --refresh")
			sameRecords(t, versions[is], n.records(t))
			n.nothingTemporary(t)
			n.says(t, 0, "check")
		},
	}.killAtEveryStep(t)
}

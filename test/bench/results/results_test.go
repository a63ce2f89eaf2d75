package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

// TestTables checks that docs/benchmarks.md has the tables of the measurements.
func TestTables(t *testing.T) {
	r, err := Load(filepath.Join(root, "docs/images/benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs/benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]string{"attach": r.AttachTable(), "attach beside others": r.AttachCrowdedTable(), "ipam": r.IPAMTable(), "restore": r.RestoreTable(), "move": r.MoveTable(), "agent": r.AgentTable(), "NIC that is back": r.ReturnTable(), "recording": r.RecordingTable(), "audit": r.AuditTable(),
		"pods of a pool": r.PoolBurstTable(), "ADDs of a pool": r.PoolAttachTable(), "clusters with a pool": r.PoolScaleTable(), "idle clusters with a pool": r.PoolIdleTable()} {
		if strings.Count(table, "\n") < 4 || !strings.Contains(string(document), table) {
			t.Errorf("docs/benchmarks.md does not have the table of %s in docs/images/benchmarks.json:\n%s", name, table)
		}
	}
}

// TestCharts checks that the charts in docs/images show the measurements.
func TestCharts(t *testing.T) {
	r, err := Load(filepath.Join(root, "docs/images/benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := r.Draw(dir); err != nil {
		t.Fatal(err)
	}
	drawn, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(drawn) != 3 {
		t.Fatalf("%d charts were drawn, not 3: %v", len(drawn), err)
	}
	for _, path := range drawn {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(root, "docs/images", filepath.Base(path)))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/images/%s is not drawn of docs/images/benchmarks.json: go -C test/bench run . -draw (%v)", filepath.Base(path), err)
		}
	}
}

// TestDrawWithout checks that a table without measurements has no chart, and that this is no error.
func TestDrawWithout(t *testing.T) {
	dir := t.TempDir()
	if err := (Results{Attach: []Attach{{Who: "one", Add: Spread{Median: 1}, Del: Spread{Median: 2}}}}).Draw(dir); err != nil {
		t.Fatal(err)
	}
	drawn, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(drawn) != 1 || filepath.Base(drawn[0]) != "bench-attach.svg" {
		t.Errorf("drawn: %v, %v", drawn, err)
	}
}

// TestKept checks that saved results can be loaded again, and that a missing file is no error.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	if r, err := Load(path); err != nil || !cmp.Equal(r, Results{}) {
		t.Errorf("a missing file: %+v, %v", r, err)
	}
	want := Results{System: "Linux", IPAM: []IPAM{{Held: 3, Add: Spread{1.5, 2}, Growth: 1.01}}, Restore: []Restore{{Sandboxes: 1, PeakMB: 2, CheckS: 0.1}}}
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "read results") {
		t.Errorf("a torn file: %v", err)
	}
}

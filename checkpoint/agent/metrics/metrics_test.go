package metrics_test

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// fakeAgent is an agent with fixed answers.
type fakeAgent struct {
	status  control.Status
	figures agent.Figures
}

func (s fakeAgent) Status() control.Status { return s.status }
func (s fakeAgent) Figures() agent.Figures { return s.figures }

// busy is an agent on a node with everything that metrics can show.
var busy = fakeAgent{
	control.Status{
		Paused: &control.Pause{Since: time.Unix(500, 0)}, Unannounced: 4,
		Chains: []control.Chain{
			{Base: "eth0", State: control.Whole, Since: time.Unix(100, 0), Attachments: 10},
			{Base: "eth0", State: control.BackingOff, Since: time.Unix(200, 0), NextTry: time.Unix(260, 0), Attachments: 2, Lost: 1},
			{Base: "", State: control.Whole, Attachments: 1}, {Base: "", State: control.Lost, Attachments: 3, Lost: 3},
		},
		Drift: make([]control.Drift, 2),
	},
	agent.Figures{
		Unreadable: 1, Absent: 5, Oldest: time.Unix(10, 0), Newest: time.Unix(20, 0), HostOverruns: 7, LastRound: time.Unix(300, 500_000_000),
		Refresher: watch.Counters{Readings: 30, Refreshes: 20, Refusals: 10, Failures: 2, Overruns: 1},
	},
}

// scrape returns the metrics as Prometheus gets them.
func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	return get(t, m.Handler())
}

func get(t testing.TB, h http.Handler) string {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// expectLines reports each line that is missing from the metrics.
func expectLines(t *testing.T, got string, lines ...string) {
	t.Helper()
	all := strings.Split(got, "\n")
	for _, line := range lines {
		if !slices.Contains(all, line) {
			name, _, _ := strings.Cut(line, " ")
			name, _, _ = strings.Cut(name, "{")
			t.Errorf("there is no line %s\nthere are\n%s", line, strings.Join(slices.DeleteFunc(slices.Clone(all), func(l string) bool { return !strings.HasPrefix(l, name) }), "\n"))
		}
	}
}

// allocate gives the attachment c<n> on the network an address of 10.9.0.0/29 with the gateway 10.9.0.1. That range has 5
// addresses for pods.
func allocate(t testing.TB, dir, network string, n int) {
	t.Helper()
	store, err := lease.Open(dir, network)
	if err != nil {
		t.Fatal(err)
	}
	set := lease.RangeSet{{Subnet: netip.MustParsePrefix("10.9.0.0/29"), Span: lease.Span{First: netip.MustParseAddr("10.9.0.2"), Last: netip.MustParseAddr("10.9.0.6")}, Gateway: netip.MustParseAddr("10.9.0.1")}}
	_, err = store.Allocate(t.Context(), lease.Request{Attachment: attachment.Key{Network: network, ContainerID: fmt.Sprintf("c%d", n), IfName: "eth0"}, Sets: []lease.RangeSet{set}})
	if err != nil {
		t.Fatal(err)
	}
}

// fakeAudits are audits of which this is the last one.
type fakeAudits struct{ last *control.Audit }

func (a fakeAudits) Last() *control.Audit { return a.last }

func (fakeAudits) Counts() (freed, failed uint64) { return 5, 3 }

// Before the first audit only the counters are there.
func TestBeforeTheFirstAudit(t *testing.T) {
	m := metrics.New("v1", t.TempDir())
	m.RegisterAudits(fakeAudits{}.Last, fakeAudits{}.Counts)
	if got := scrape(t, m); !strings.Contains(got, "relink_gc_freed_total 5") || strings.Contains(got, "relink_audit_") {
		t.Error(got)
	}
}

// fullMetrics is an agent's metrics with all that they can show.
func fullMetrics(dir string) *metrics.Metrics {
	m := metrics.New("v1", dir)
	m.RegisterAgent(busy)
	m.RegisterResults(
		func() map[string]uint64 { return map[string]uint64{"sent": 7, "pod_gone": 0} },
		func() map[string]uint64 { return map[string]uint64{"sent": 8, "failed": 0} },
	)
	audits := fakeAudits{&control.Audit{Time: time.Unix(700, 0), Findings: map[string]int{"fine": 9, "lost interface": 1}, Errors: 1, Waiting: 2, Problem: "x"}}
	m.RegisterAudits(audits.Last, audits.Counts)
	m.RegisterNodeController(fakeNodeController{time.Unix(800, 0), true}.LastAnswer)
	_ = m.MeasureRequests(fakePools{}).Refill(context.Background(), pool.Demand{Network: "lan"})
	return m
}

func TestWhatIsShown(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	allocate(t, dir, "lan", 2)
	m := fullMetrics(dir)
	m.Observe(agent.WakeDevices)
	m.Observe(agent.LossCount(3))
	in := func(state change.State) restore.Outcome {
		return restore.Outcome{Outcome: change.Outcome{State: state}}
	}
	m.Observe(agent.Try{Duration: 30 * time.Millisecond, Outcomes: []restore.Outcome{in(restore.Restored), in(restore.Restored), in(restore.SandboxGone)}})
	m.Observe(agent.Try{Duration: 30 * time.Second, Reason: "no such device"})
	m.Observe(agent.Outage{LostAt: time.Unix(100, 0), BackAt: time.Unix(107, 0), WholeAt: time.Unix(107, 40_000_000)})
	m.Observe(agent.Connection(9 * time.Second))
	expectLines(t, scrape(t, m),
		`relink_agent_build_info{version="v1"} 1`,
		`relink_attachments{state="whole"} 10`, `relink_attachments{state="lost"} 4`, `relink_attachments{state="drifted"} 2`, `relink_attachments{state="sandbox_gone"} 5`,
		// Two chains on eth0: the worst state counts.
		`relink_base_attachments{base="eth0"} 12`, `relink_base_lost_attachments{base="eth0"} 1`,
		`relink_base_state{base="eth0",state="backing_off"} 1`, `relink_base_state{base="eth0",state="whole"} 0`,
		`relink_base_state_since_timestamp_seconds{base="eth0"} 200`, `relink_base_next_try_timestamp_seconds{base="eth0"} 260`,
		`relink_base_attachments{base="in pods"} 4`, `relink_base_state{base="in pods",state="lost"} 1`,
		`relink_announcements_owed 4`, `relink_agent_paused 1`, `relink_agent_paused_since_timestamp_seconds 500`, `relink_agent_last_round_timestamp_seconds 300.5`,
		`relink_checkpoints_unreadable 1`, `relink_checkpoint_captured_timestamp_seconds{which="oldest"} 10`, `relink_checkpoint_captured_timestamp_seconds{which="newest"} 20`,
		`relink_checkpoint_readings_total{result="complete"} 30`, `relink_checkpoint_readings_total{result="failed"} 2`,
		`relink_checkpoint_refreshes_total 20`, `relink_checkpoint_refusals_total 10`, `relink_agent_overruns_total{watch="pods"} 1`, `relink_agent_overruns_total{watch="host"} 7`,
		`relink_agent_wakeups_total{source="devices"} 1`, `relink_agent_wakeups_total{source="timer"} 0`,
		`relink_losses_total 1`, `relink_lost_attachments_total 3`, `relink_restores_total{result="restored"} 1`, `relink_restores_total{result="failed"} 1`,
		`relink_restored_attachments_total{outcome="restored"} 2`, `relink_restored_attachments_total{outcome="sandbox_gone"} 1`, `relink_restored_attachments_total{outcome="failed"} 0`,
		`relink_restore_duration_seconds_count 2`, `relink_restore_duration_seconds_bucket{le="0.05"} 1`,
		`relink_loss_to_whole_seconds_sum 7.04`, `relink_back_to_whole_seconds_bucket{le="0.05"} 1`, `relink_loss_to_connected_seconds_sum 9`,
		`relink_ipam_leases{network="lan",ranges="10.9.0.2-10.9.0.6",state="held"} 2`, `relink_ipam_leases{network="lan",ranges="10.9.0.2-10.9.0.6",state="reserved"} 0`,
		`relink_ipam_pool_addresses{network="lan",ranges="10.9.0.2-10.9.0.6"} 5`, `relink_ipam_pool_free_addresses{network="lan",ranges="10.9.0.2-10.9.0.6"} 3`,
		`relink_audit_findings{kind="fine"} 9`, `relink_audit_findings{kind="lost interface"} 1`, `relink_audit_errors 1`, `relink_audit_complete 0`,
		`relink_audit_last_timestamp_seconds 700`, `relink_gc_freed_total 5`, `relink_gc_failures_total 3`, `relink_gc_waiting 2`,
		`relink_pod_events_total{result="sent"} 7`, `relink_pod_events_total{result="pod_gone"} 0`,
		`relink_condition_patches_total{result="sent"} 8`, `relink_condition_patches_total{result="failed"} 0`,
		`relink_ipam_outside_leases{network="lan"} 0`, `relink_ipam_store_readable{network="lan"} 1`,
	)
}

func TestLint(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	m := fullMetrics(dir)
	grant(t, dir, "wan", "++?-")
	for _, text := range []string{scrape(t, m), get(t, metrics.ControllerHandler("v1", lookedAt.Seen))} {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// The metrics show a change of a store. They do not read an unchanged store again.
func TestPools(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	metrics.DisableCache(t)
	m := metrics.New("v1", dir)
	held := `relink_ipam_leases{network="lan",ranges="10.9.0.2-10.9.0.6",state="held"} `
	first := scrape(t, m)
	expectLines(t, first, held+"1")
	if again := scrape(t, m); readTimestamp(t, again) != readTimestamp(t, first) {
		t.Error("a store that nobody has changed was read again")
	}
	allocate(t, dir, "lan", 2)
	second := scrape(t, m)
	expectLines(t, second, held+"2", `relink_ipam_store_readable{network="lan"} 1`)

	// The store is damaged: the metrics keep the last values, and say that the reading failed.
	if err := os.WriteFile(filepath.Join(dir, "lan.db"), make([]byte, 20000), 0o600); err != nil {
		t.Fatal(err)
	}
	third := scrape(t, m)
	expectLines(t, third, held+"2", `relink_ipam_store_readable{network="lan"} 0`)
	if readTimestamp(t, third) != readTimestamp(t, second) {
		t.Error("a failed reading changed the time of the last reading")
	}

	// The store is deleted, and its metrics go too.
	if err := os.Remove(filepath.Join(dir, "lan.db")); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, m); strings.Contains(got, `network="lan"`) {
		t.Error("a store that is gone is shown")
	}
}

// Another process holds the lock of a store. A question still gets an answer, with the last values.
func TestABusyStore(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	metrics.DisableCache(t)
	m := metrics.New("v1", dir)
	scrape(t, m)
	allocate(t, dir, "lan", 2)
	f, err := os.Open(filepath.Join(dir, "lan.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	held := `relink_ipam_leases{network="lan",ranges="10.9.0.2-10.9.0.6",state="held"} `
	began := time.Now()
	expectLines(t, scrape(t, m), held+"1")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the answer took %s", took)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !strings.Contains(scrape(t, m), held+"2") {
		if ctx.Err() != nil {
			t.Fatal("the new lease is not shown after the lock is free")
		}
	}
}

func readTimestamp(t *testing.T, got string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^relink_ipam_store_read_timestamp_seconds\{network="lan"\} (.*)$`).FindStringSubmatch(got)
	if line == nil {
		t.Fatalf("no time of a reading in\n%s", got)
	}
	n, _, err := big.ParseFloat(line[1], 10, 64, big.ToNearestEven)
	if err != nil || n.Sign() <= 0 {
		t.Fatalf("the time of the reading is %s", line[1])
	}
	return line[1]
}

// The table of docs/monitoring.md has each metric, with its labels, and no other.
func TestTheDocumentHasEachMetric(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	m := fullMetrics(dir)
	grant(t, dir, "wan", "++?-")
	real := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (relink_\w+) (\w+)$`).FindAllStringSubmatch(scrape(t, m)+get(t, metrics.ControllerHandler("v1", lookedAt.Seen)), -1) {
		real[line[1]+" "+line[2]] = true
	}
	text, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(relink_\\w+)(?:{[^`]*})?` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		if !real[row[1]+" "+row[2]] {
			t.Errorf("docs/monitoring.md has %s, a %s, but the agent does not", row[1], row[2])
		}
		delete(real, row[1]+" "+row[2])
	}
	for what := range real {
		t.Errorf("docs/monitoring.md does not have %s", what)
	}
}

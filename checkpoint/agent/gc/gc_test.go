package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// fakeAPI stands for the Kubernetes API: no owner is there any more.
type fakeAPI struct{}

func (fakeAPI) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	for _, o := range owners {
		all = append(all, owner.Judgement{Owner: o, Standing: owner.Gone, Reason: "the API does not have it", Cluster: "u-here"})
	}
	return all
}

// fakeRuntime is one without sandboxes, or one that fails.
type fakeRuntime struct{ err error }

func (r fakeRuntime) Sandboxes(context.Context) ([]sandbox.RuntimeSandbox, error) { return nil, r.err }

// newAuditor returns an Auditor of a node with one reservation, whose owner is gone.
func newAuditor(t *testing.T) (*Auditor, *lease.Store, *bytes.Buffer) {
	t.Helper()
	leases, err := lease.Open(t.TempDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	subnet := netip.MustParsePrefix("10.231.3.0/24")
	key := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}
	_, err = leases.Allocate(t.Context(), lease.Request{
		Attachment: key, Owner: attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u1", Ordinal: attachment.OrdinalOf(1)},
		Sets:   []lease.RangeSet{{{Span: lease.Span{First: subnet.Addr().Next(), Last: subnet.Addr().Next().Next()}, Subnet: subnet}}},
		Policy: lease.Policy{Sticky: true},
	})
	if err == nil {
		err = errors.Join(leases.Release(t.Context(), key, lease.Policy{}), leases.SetCluster(t.Context(), "u-here"))
	}
	if err != nil {
		t.Fatal(err)
	}
	store, log := checkpoint.OpenStore(t.TempDir()), &bytes.Buffer{}
	return New(Options{
		Sources: func() (audit.Sources, error) {
			return audit.Sources{Store: store, Leases: []*lease.Store{leases}, Runtime: fakeRuntime{}, Judge: fakeAPI{}, CacheDir: t.TempDir(), AllProcesses: true}, nil
		},
		Grace: time.Nanosecond, Log: slog.New(slog.NewTextHandler(log, nil)),
	}), leases, log
}

// The first audit sees the reservation, and the second one frees it. Both are told.
func TestTwoAuditsFree(t *testing.T) {
	k, leases, log := newAuditor(t)
	k.runOnce(t.Context())
	first := k.Last()
	if first == nil || first.Waiting != 1 || first.Freed != 0 || first.Findings["reservation without owner"] != 1 || first.Problem != "" {
		t.Fatalf("the first audit: %+v", first)
	}
	k.runOnce(t.Context())
	if last := k.Last(); last.Freed != 1 || last.Waiting != 0 {
		t.Errorf("the second audit: %+v", last)
	}
	if freed, failed := k.Counts(); freed != 1 || failed != 0 {
		t.Errorf("%d freed, %d failed", freed, failed)
	}
	all, err := leases.List(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("left: %v %v", all, err)
	}
	for _, want := range []string{
		"an audit has found no error", `msg="freed: it is proven dead" address=10.231.3.1`, `owner="StatefulSet shop/web, ordinal 1"`, "the API does not have it",
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not have %q once:\n%s", want, log)
		}
	}
}

// Told to audit only, it frees nothing, however often it looks.
func TestAnAuditOnly(t *testing.T) {
	k, leases, _ := newAuditor(t)
	k.OnlyAudit = true
	for range 3 {
		k.runOnce(t.Context())
	}
	all, err := leases.List(t.Context())
	if err != nil || len(all) != 1 || k.Last().Freed != 0 || k.Last().Findings["reservation without owner"] != 1 {
		t.Errorf("left: %v %v, last %+v", all, err, k.Last())
	}
}

// What is wrong is said once, and again when it has changed.
func TestWhatIsWrongIsSaidOnce(t *testing.T) {
	k, _, log := newAuditor(t)
	sources := k.Sources
	fail := errors.New("it hangs")
	k.Sources = func() (audit.Sources, error) {
		from, err := sources()
		from.Runtime = fakeRuntime{fail}
		return from, err
	}
	for range 3 {
		k.runOnce(t.Context())
	}
	fail = nil
	k.runOnce(t.Context())
	k.Sources = func() (audit.Sources, error) { return audit.Sources{}, errors.New("no such directory") }
	k.runOnce(t.Context())
	var said []string
	for line := range strings.Lines(log.String()) {
		if _, msg, ok := strings.Cut(line, "msg="); ok && !strings.Contains(line, "freed") {
			said = append(said, strings.TrimSpace(msg))
		}
	}
	want := []string{
		`"an audit could not look at everything: what it did not see is kept" problem="the container runtime did not tell of all its sandboxes: it hangs"`,
		`"an audit has found no error"`,
		`"an audit could not look at everything: what it did not see is kept" problem="no such directory"`,
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The first error is named, with the pod and the evidence.
func TestTheFirstErrorIsNamed(t *testing.T) {
	var report gc.PassReport
	report.Audit = audit.NodeReport{Errors: 2, Counts: map[audit.Kind]int{audit.LostInterface: 2}}
	for i := range 2 {
		report.Audit.Findings = append(report.Audit.Findings, audit.Finding{
			Kind: audit.LostInterface, Severity: audit.Error, Attachment: attachment.Key{Network: "lan", ContainerID: fmt.Sprint("c", i), IfName: "eth0"},
			Pod: attachment.Pod{Namespace: "shop", Name: "web-0"}, Evidence: []string{"lan0 is gone", "and all on it"},
		})
	}
	if got, want := summary(report, nil, time.Now()).FirstError, "lost interface: shop/web-0 eth0 of c0 on lan: lan0 is gone; and all on it"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// It audits until it is told to end.
func TestRunEnds(t *testing.T) {
	k, _, _ := newAuditor(t)
	k.Interval = time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if freed, _ := k.Counts(); freed == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("two audits did not come")
		}
	}
	end()
	<-ended
}

package change_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
)

// targetsOn returns one target for each "container ID/interface".
func targetsOn(names ...string) (targets []checkpoint.Record) {
	for _, name := range names {
		id, ifName, _ := strings.Cut(name, "/")
		key := attachment.Key{Network: "lan", ContainerID: id, IfName: ifName}
		targets = append(targets, checkpoint.Record{Attachment: key})
	}
	return targets
}

func TestEachTargetHasItsSandboxLocked(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	targets := targetsOn("c1/eth0", "c2/eth0", "c1/net1", "c3/eth0", "c1/net2")
	var mu sync.Mutex
	order := map[string][]string{}
	change.NewRunner(store).Run(t.Context(), targets, func(i int) error {
		id := targets[i].Attachment.ContainerID
		if _, err := store.TryLock(id); !errors.Is(err, checkpoint.ErrBusy) {
			t.Errorf("%s can be locked: %v", id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		order[id] = append(order[id], targets[i].Attachment.IfName)
		return nil
	})
	want := map[string][]string{"c1": {"eth0", "net1", "net2"}, "c2": {"eth0"}, "c3": {"eth0"}}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	if store.InUse("c1") {
		t.Error("the lock of c1 was left behind")
	}
}

func TestNobodyWaitsForABusySandbox(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	unlock, err := store.TryLock("busy")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"busy/eth0", "busy/net1"}
	for i := range 100 {
		names = append(names, fmt.Sprintf("c%d/eth0", i))
	}
	targets, others := targetsOn(names...), 0
	var mu sync.Mutex
	var busy []string
	change.NewRunner(store).Run(t.Context(), targets, func(i int) error {
		mu.Lock()
		defer mu.Unlock()
		if targets[i].Attachment.ContainerID == "busy" {
			busy = append(busy, targets[i].Attachment.IfName)
		} else if others++; others == 100 {
			unlock()
		}
		return nil
	})
	if !slices.Equal(busy, []string{"eth0", "net1"}) || others != 100 {
		t.Errorf("of the busy sandbox: %q, others: %d", busy, others)
	}
}

func TestABusySandboxFailsAfterTheRunnersPatience(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	unlock, err := store.TryLock("busy")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	runner := change.NewRunner(store)
	runner.Patience = 200 * time.Millisecond
	errs := runner.Run(t.Context(), targetsOn("busy/eth0", "c1/eth0"), func(int) error { return nil })
	if err := errs[0]; !errors.Is(err, checkpoint.ErrBusy) || !strings.Contains(err.Error(), "for more than 200ms") {
		t.Errorf("the busy one: %v", err)
	}
	if errs[1] != nil {
		t.Error(errs[1])
	}
}

func TestOneFailureStopsNobody(t *testing.T) {
	targets := targetsOn("c1/eth0", "c1/net1", "c2/eth0")
	failure := errors.New("no")
	errs := change.NewRunner(checkpoint.OpenStore(t.TempDir())).Run(t.Context(), targets, func(i int) error {
		if targets[i].Attachment.IfName == "eth0" && targets[i].Attachment.ContainerID == "c1" {
			return failure
		}
		return nil
	})
	if !errors.Is(errs[0], failure) || errs[1] != nil || errs[2] != nil {
		t.Errorf("%v, %v, %v", errs[0], errs[1], errs[2])
	}
}

// What has begun ends. What waits for a busy sandbox is not tried, either.
func TestAfterAnInterruptTheRestIsNotTried(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	unlock, err := store.TryLock("busy")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, interrupt := context.WithCancel(t.Context())
	targets := targetsOn("busy/eth0", "c1/eth0", "c1/net1")
	errs := change.NewRunner(store).Run(ctx, targets, func(int) error {
		interrupt()
		return nil
	})
	for i, notTried := range []bool{true, false, true} {
		if errors.Is(errs[i], change.ErrNotTried) != notTried || (errs[i] != nil) != notTried {
			t.Errorf("%s: %v", targets[i].Attachment, errs[i])
		}
	}
}

func TestProgressCountsTheSandboxesOfAllCalls(t *testing.T) {
	runner := change.NewRunner(checkpoint.OpenStore(t.TempDir()))
	var got []string
	runner.Progress = func(finished, total int) { got = append(got, fmt.Sprintf("%d of %d", finished, total)) }
	for _, names := range [][]string{{"c1/eth0", "c1/net1", "c2/eth0"}, {"c3/eth0"}} {
		runner.Run(t.Context(), targetsOn(names...), func(int) error { return nil })
	}
	if diff := cmp.Diff([]string{"1 of 2", "2 of 2", "3 of 3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestADryRunLocksNothing(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	runner := change.NewRunner(store)
	runner.Unlocked = true
	runner.Run(t.Context(), targetsOn("c1/eth0"), func(int) error {
		if store.InUse("c1") {
			t.Error("it is locked")
		}
		return nil
	})
}

func TestReport(t *testing.T) {
	outcome := func(pod, ifName string, err error) change.Outcome {
		o := change.Outcome{Pod: attachment.Pod{Namespace: "shop", Name: pod}, Attachment: attachment.Key{IfName: ifName}, State: change.Kept}
		if err != nil {
			o.Fail(err)
		}
		return o
	}
	complete := change.Report[change.Outcome]{Outcomes: []change.Outcome{outcome("web", "net1", nil), outcome("web", "eth0", nil), outcome("db", "eth0", nil)}}
	complete.Sort()
	var order []string
	for _, o := range complete.Outcomes {
		order = append(order, o.Pod.Name+" "+o.Attachment.IfName)
	}
	if diff := cmp.Diff([]string{"db eth0", "web eth0", "web net1"}, order); diff != "" {
		t.Error(diff)
	}
	if !complete.Complete() || complete.Count(change.Kept) != 3 {
		t.Errorf("complete: %v, kept: %d", complete.Complete(), complete.Count(change.Kept))
	}
	for reason, r := range map[string]change.Report[change.Outcome]{
		"failed":      {Outcomes: []change.Outcome{outcome("web", "eth0", errors.New("no"))}},
		"not tried":   {Outcomes: []change.Outcome{outcome("web", "eth0", fmt.Errorf("web: %w", change.ErrNotTried))}},
		"refused":     {Outcomes: []change.Outcome{{State: change.Refused}}},
		"problem":     {Problems: []string{"a torn file"}},
		"interrupted": {Interrupted: true},
	} {
		if r.Complete() {
			t.Errorf("%s: it is complete", reason)
		}
		if len(r.Outcomes) > 0 && string(r.Outcomes[0].State) != reason {
			t.Errorf("%s: the state is %q", reason, r.Outcomes[0].State)
		}
	}
}

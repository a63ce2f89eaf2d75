package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	kept "github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/bench/results"
)

// told is a container runtime that has these sandboxes.
type told []kept.RuntimeSandbox

func (t told) Sandboxes(context.Context) ([]kept.RuntimeSandbox, error) { return t, nil }

// benchAudit measures relink audit and relink check in turn, on a node on which all is well. Each sandbox has an interface, a
// checkpoint and a lease. The other leases wait for owners. The agent of the benchmark answers at once about all sandboxes
// and owners: what a runtime and an API take is no part of the time.
func benchAudit(bin string, pods int, leases []int) ([]results.Audit, error) {
	n := &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: 100}
	defer n.remove()
	if err := n.grow(pods); err != nil {
		return nil, err
	}
	held, runtime, err := n.lend()
	if err != nil {
		return nil, err
	}
	end, err := serveAgent(agentSocket, serve.Sources{Owners: cached{}, Runtime: runtime})
	if err != nil {
		return nil, err
	}
	defer end()
	var rows []results.Audit
	for _, count := range leases {
		dir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
		if err != nil {
			return nil, err
		}
		row, err := n.audits(dir, slices.Concat(held, reserved(count-len(held))))
		if err := removeAll(dir, err); err != nil {
			return nil, fmt.Errorf("%d leases: %w", count, err)
		}
		rows = append(rows, row)
	}
	fmt.Printf("relink audit and relink check as whole processes, in turn; median of %d (longest)\n\n", auditRounds)
	fmt.Println(results.Results{Audit: rows}.AuditTable())
	return rows, nil
}

// lend makes each checkpoint that of a sandbox to which relink-ipam gave an address. It returns the leases, and what the runtime
// has.
func (n *node) lend() (held []lease.Lease, runtime told, err error) {
	records, unreadable, err := n.store.List()
	if err != nil || len(unreadable) > 0 {
		return nil, nil, fmt.Errorf("read the checkpoints: %v: %w", unreadable, err)
	}
	for i, r := range records {
		prefix := r.Interface.Addresses[0].Prefix
		r.CNI.Config = []byte(`{"cniVersion":"1.1.0","name":"bench","type":"relink-macvlan","ipam":{"type":"relink-ipam"}}`)
		r.CNI.Result = fmt.Appendf(nil, `{"cniVersion":"1.1.0","ips":[{"address":%q}]}`, prefix)
		r.Pod.Name, r.Pod.UID = fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i)
		r.Owner = ownerOf(i)
		if err := n.store.Save(r); err != nil {
			return nil, nil, err
		}
		runtime = append(runtime, kept.RuntimeSandbox{ContainerID: r.Attachment.ContainerID, Pod: r.Pod, Ready: true, Netns: r.Namespace.Path})
		held = append(held, lease.Lease{Address: prefix.Addr(), State: lease.Held, Owner: r.Owner, Holders: []lease.Holder{{
			ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName, Pod: r.Pod, Owner: r.Owner, Namespace: r.Namespace, Since: time.Now(),
			Origin: lease.InTurn, Policy: lease.Policy{Sticky: true},
		}}})
	}
	slices.SortFunc(held, func(a, b lease.Lease) int { return a.Address.Compare(b.Address) })
	return held, runtime, nil
}

// reserved are leases of addresses that wait for owners.
func reserved(count int) (all []lease.Lease) {
	a := netip.MustParseAddr("10.65.0.0")
	for i := range count {
		owner := ownerOf(100000 + i)
		pod := attachment.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: owner.UID}
		all = append(all, lease.Lease{
			Address: a, State: lease.Reserved, Owner: owner, ReleasedAt: time.Now(), Reason: "released",
			Last: lease.Holder{ContainerID: fmt.Sprintf("%064x", i), IfName: "eth0", Pod: pod, Owner: owner, Policy: lease.Policy{Sticky: true}},
		})
		a = a.Next()
	}
	return all
}

// ownerOf is one of many StatefulSets, each of which has 50 pods.
func ownerOf(i int) attachment.Owner {
	uid := fmt.Sprintf("7c1f9a52-3e4f-5a6b-7c8d-%012x", i/50)
	return attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: fmt.Sprintf("web-%d", i/50), UID: uid, Ordinal: attachment.OrdinalOf(i % 50)}
}

// auditRounds is how often each command is measured.
const auditRounds = 9

// audits measures with these leases in a store in dir.
func (n *node) audits(dir string, leases []lease.Lease) (row results.Audit, err error) {
	store, err := lease.Open(dir, "bench")
	if err != nil {
		return row, err
	}
	err = store.Import(context.Background(), false, func(lease.ImportView) lease.Import { return lease.Import{Leases: leases} })
	if err != nil {
		return row, err
	}
	row = results.Audit{Sandboxes: len(n.sandboxes), Leases: len(leases)}
	var audits, checks []float64
	for range auditRounds {
		took, peak, err := n.runs("audit", dir)
		if err != nil {
			return row, err
		}
		audits, row.AuditMB = append(audits, took), max(row.AuditMB, peak)
		if took, peak, err = n.runs("check", dir); err != nil {
			return row, err
		}
		checks, row.CheckMB = append(checks, took), max(row.CheckMB, peak)
	}
	row.AuditS, row.CheckS = results.Seconds{Median: median(audits), Longest: slices.Max(audits)}, results.Seconds{Median: median(checks), Longest: slices.Max(checks)}
	return row, nil
}

// runs runs relink with the verb. It returns the time in seconds and the peak memory in MiB. All must be well. The kernel counts the
// peak of the process that starts relink as relink's, so that is reset before.
func (n *node) runs(verb, leases string) (took float64, peak int64, err error) {
	cmd := exec.Command(filepath.Join(n.bin, "relink"), "--checkpoint-dir", n.store.Dir(), verb)
	cmd.Env = append(os.Environ(), control.SocketEnv+"="+agentSocket, lease.DirEnv+"="+leases)
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // proc(5)
		return 0, 0, err
	}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("relink %s: %w: %s", verb, err, out)
	}
	return time.Since(start).Seconds(), maxRSS(cmd.ProcessState) >> 10, nil
}

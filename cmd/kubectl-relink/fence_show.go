package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/fence"
	"github.com/relink-cni/relink/pkg/printable"
)

// fenceAdvice says what a fence means for the pods. Then come the reasons to think again.
func fenceAdvice(r fence.Result) []string {
	advice := []string{fmt.Sprintf("Other nodes may take the %s of %s then, each after a probe. If the machine still runs, two pods can have one address: make sure that it is off.",
		printable.Count(r.Addresses(fence.ToFence), "address"), r.Node)}
	switch r.Object {
	case fence.Ready:
		advice = append(advice, fmt.Sprintf("WARNING: node %s is Ready: its kubelet has answered lately. Its pods may run.", r.Node))
	case fence.Unknown:
		advice = append(advice, fmt.Sprintf("WARNING: relink cannot see whether node %s is Ready: %s", r.Node, r.ObjectReason))
	}
	var old, used []string
	for _, p := range r.Parts {
		switch {
		case p.State != fence.ToFence:
		case p.ThisBoot:
			used = append(used, p.Store)
		default:
			old = append(old, p.Store)
		}
	}
	old = slices.DeleteFunc(old, func(s string) bool { return slices.Contains(used, s) })
	if len(used) > 0 && r.Object == fence.Ready {
		advice = append(advice, fmt.Sprintf("WARNING: %s has used since its last boot: store %s.", r.Node, strings.Join(cli.Unique(used), ", ")))
		if len(old) > 0 {
			advice = append(advice, "If it has a new disk, fence only what the old one had: --store "+strings.Join(cli.Unique(old), " --store ")+".")
		}
	}
	return advice
}

func writeFence(report fence.Result, s *cli.Screen) error {
	err := s.Present(report, report.Complete(), func() {
		fenceTable(report, s)
		writeNotFenced(report, s)
		s.Info(fenceSummary(report))
		if report.Count(fence.ToFence) > 0 {
			s.InfoLines(fenceAdvice(report))
		}
	})
	if report.Alive != "" {
		s.Warnf("%s. Make sure that the machine is off, and run it again.", report.Alive)
	}
	return err
}

// fenceRow is a row of the table: the parts that have all of this in common.
type fenceRow struct {
	store, network, pool, block string
	state                       fence.PartState
}

// fenceTable has a row for each store and pool. A wide one has a row for each block of it.
func fenceTable(r fence.Result, s *cli.Screen) {
	t := cli.NewTable("STORE | NETWORK:1 | POOL | BLOCK:wide | BLOCKS:2 | ADDRESSES | ASKS FOR:4 | BOOT:3 | STATE")
	var rows []fenceRow
	blocks, addresses, asks := map[fenceRow]int{}, map[fenceRow]int{}, map[fenceRow]int{}
	for _, p := range r.Parts {
		if s.Quiet && (p.State == fence.Fenced || p.State == fence.FencedBefore) {
			continue
		}
		row := fenceRow{store: p.Store, network: p.Network, pool: p.Pool, state: p.State}
		if s.Wide() {
			row.block = p.Block
		}
		if blocks[row] == 0 {
			rows = append(rows, row)
		}
		blocks[row]++
		addresses[row] += p.Addresses
		asks[row] += p.Asks
	}
	for _, row := range rows {
		t.Values(row.store, row.network, row.pool, row.block, blocks[row], addresses[row], asks[row], bootCell(r, row.store), row.state)
	}
	t.Write(s)
}

// bootCell says whether the node has used the store since its last boot, empty if nobody knows.
func bootCell(r fence.Result, store string) string {
	switch {
	case r.Boot == "":
		return ""
	case slices.ContainsFunc(r.Parts, func(p fence.Part) bool { return p.Store == store && p.ThisBoot }):
		return "this boot"
	}
	return "earlier"
}

// writeNotFenced lists what is not fenced, and why.
func writeNotFenced(r fence.Result, s *cli.Screen) {
	var failed, before []string
	for _, p := range r.Parts {
		switch p.State {
		case fence.Failed:
			failed = append(failed, fmt.Sprintf("%s is not fenced: %s", p.Block, p.Reason))
		case fence.FencedBefore:
			before = append(before, fencedLine(r.Node, p.Reason))
		}
	}
	s.PrintLines(cli.Unique(failed))
	s.InfoLines(cli.Unique(before))
}

func fencedLine(node, reason string) string {
	return "others may take what " + node + " had: " + reason
}

// fenceSummary counts the addresses by what became of them.
func fenceSummary(r fence.Result) string {
	var parts []string
	for _, state := range []fence.PartState{fence.ToFence, fence.Fenced, fence.FencedBefore, fence.Skipped, fence.Failed} {
		if r.Count(state) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", printable.Count(r.Addresses(state), "address"), state))
		}
	}
	summary := cmp.Or(strings.Join(parts, ", "), "no AddressBlock has anything of "+r.Node)
	if len(r.Spared) > 0 {
		summary += "; not touched: store " + strings.Join(r.Spared, ", ")
	}
	return summary
}

// fencedLines says why others may take what holders of the blocks had.
func fencedLines(blocks []pool.Block) (lines []string) {
	for _, b := range blocks {
		for _, h := range b.Status.Holders {
			if h.Fenced != "" {
				lines = append(lines, fencedLine(h.Node, h.Fenced))
			}
		}
	}
	return cli.Unique(lines)
}

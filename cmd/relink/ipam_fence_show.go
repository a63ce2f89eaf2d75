package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/fence"
	"github.com/relink-cni/relink/pkg/printable"
)

// fenceConsequence says what a fence means for the pods.
func fenceConsequence(r fence.Result) string {
	return fmt.Sprintf("Other nodes may take the %s of %s then, each after a probe. If the machine still runs, two pods can have one address: make sure that it is off.",
		printable.Count(r.Addresses(fence.ToFence), "address"), r.Node)
}

// fenceWarnings are the reasons to think again.
func fenceWarnings(r fence.Result) (warnings []string) {
	switch r.Object {
	case fence.Ready:
		warnings = append(warnings, fmt.Sprintf("WARNING: node %s is Ready: its kubelet has answered lately. Its pods may run.", r.Node))
	case fence.Unknown:
		warnings = append(warnings, fmt.Sprintf("WARNING: relink cannot see whether node %s is Ready: %s", r.Node, r.ObjectReason))
	}
	var old, used []string
	for _, p := range r.Parts {
		stores := &old
		if p.ThisBoot {
			stores = &used
		}
		if p.State == fence.ToFence && !slices.Contains(*stores, p.Store) {
			*stores = append(*stores, p.Store)
		}
	}
	old = slices.DeleteFunc(old, func(s string) bool { return slices.Contains(used, s) })
	if len(used) > 0 && r.Object == fence.Ready {
		warnings = append(warnings, fmt.Sprintf("WARNING: %s has used since its last boot: store %s.", r.Node, strings.Join(used, ", ")))
		if len(old) > 0 {
			warnings = append(warnings, "If it has a new disk, fence only what the old one had: --store "+strings.Join(old, " --store ")+".")
		}
	}
	return warnings
}

func writeFence(report fence.Result, s *screen) error {
	if s.isData() {
		if err := s.writeData(report); err != nil {
			return err
		}
	} else {
		fenceTable(report, s)
		writeNotFenced(report, s)
		s.info(fenceSummary(report))
		if report.Count(fence.ToFence) > 0 {
			s.info(fenceConsequence(report))
			for _, line := range fenceWarnings(report) {
				s.info(line)
			}
		}
	}
	if report.Alive != "" {
		s.warnf("%s. Make sure that the machine is off, and run it again.", report.Alive)
	}
	if !report.Complete() {
		return errDiffers
	}
	return nil
}

// fenceRow is a row of the table: the parts that have all of this in common.
type fenceRow struct {
	store, network, pool, block string
	state                       fence.PartState
}

// fenceTable has a row for each store and pool. A wide one has a row for each block of it.
func fenceTable(r fence.Result, s *screen) {
	t := newTable(columns("STORE"), spareColumn("NETWORK", 1), columns("POOL"), wideColumns("BLOCK"), spareColumn("BLOCKS", 2),
		columns("ADDRESSES"), spareColumn("ASKS FOR", 4), spareColumn("BOOT", 3), columns(stateColumn))
	var rows []fenceRow
	partsByRow := map[fenceRow][]fence.Part{}
	for _, p := range r.Parts {
		if s.quiet && (p.State == fence.Fenced || p.State == fence.FencedBefore) {
			continue
		}
		row := fenceRow{store: p.Store, network: p.Network, pool: p.Pool, state: p.State}
		if s.wide() {
			row.block = p.Block
		}
		if partsByRow[row] == nil {
			rows = append(rows, row)
		}
		partsByRow[row] = append(partsByRow[row], p)
	}
	for _, row := range rows {
		addresses, asks, boot := 0, 0, ""
		for _, p := range partsByRow[row] {
			addresses, asks, boot = addresses+p.Addresses, asks+p.Asks, cmp.Or(boot, bootCell(r, p.Store))
		}
		t.row(row.store, row.network, row.pool, row.block, fmt.Sprint(len(partsByRow[row])), fmt.Sprint(addresses), fmt.Sprint(asks), boot, string(row.state))
	}
	t.write(s)
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
func writeNotFenced(r fence.Result, s *screen) {
	reported := map[string]bool{}
	for _, p := range r.Parts {
		if p.State == fence.Failed && !reported[p.Block] {
			reported[p.Block] = true
			s.printf("%s is not fenced: %s", p.Block, p.Reason)
		}
	}
	var before []string
	for _, p := range r.Parts {
		if p.State == fence.FencedBefore && !slices.Contains(before, p.Reason) {
			before = append(before, p.Reason)
			s.info(fencedLine(r.Node, p.Reason))
		}
	}
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
		for _, h := range b.Spec.Holders {
			line := fencedLine(h.Node, h.Fenced)
			if h.Fenced != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

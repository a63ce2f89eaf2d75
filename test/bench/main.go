// Command bench measures relink and its peers in one run. It writes the tables of docs/benchmarks.md, keeps the
// measurements in a file, and draws charts of them. With -draw it only draws the charts of that file.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

func main() {
	sizes := flag.String("sandboxes", "100,1000,5000", "numbers of sandboxes to restore")
	shared := flag.String("shared", "250,1000", "numbers of sandboxes to restore that are all on one parent")
	pairs := flag.Int("pairs", 200, "pairs of ADD and DEL")
	held := flag.String("held", "0,1000,10000,60000", "numbers of addresses that are held already")
	only := flag.String("only", "", "restore, attach, ipam, move, agent, recording, audit, hostaccess or pools: only this table")
	moved := flag.Int("moved", 250, "pods that move to another uplink")
	watched := flag.Int("watched", 250, "idle pods that an agent watches, 0 to leave that out")
	returned := flag.String("returned", "250,1000,5000", "numbers of pods that an agent restores when their NIC is back")
	audited := flag.Int("audited", 1000, "pods on the node that is audited")
	reached := flag.Int("reached", 250, "pods with host access")
	leases := flag.String("leases", "1000,60000", "numbers of leases on the node that is audited")
	cluster := flag.String("nodes", "10,100,1000", "numbers of nodes that share a pool, with 100 pods each")
	whereabouts := flag.Int("whereabouts", 100, "pods that get addresses of Whereabouts")
	which := flag.String("ways", allWays, "which of the ways to restore, while working on one; fewer are not kept")
	kept := flag.String("results", "docs/images/benchmarks.json", "`file` that keeps what was measured; the charts are drawn beside it")
	drawOnly := flag.Bool("draw", false, "measure nothing; draw the charts of -results")
	flag.Parse()
	root, err := binaries.Root()
	if err == nil {
		err = os.Chdir(root)
	}
	if err != nil {
		exit(err)
	}
	if *drawOnly {
		exit(draw(*kept))
	}
	bin, err := filepath.Abs("bin/test")
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		err = binaries.Build(bin)
	}
	if err == nil && os.Getenv("RELINK_FRESH") == "" && (*only == "" || *only == "pools") {
		err = preparePools(bin)
	}
	if err == nil {
		fresh.Enter()
		err = installed(bin, func(bin string) error {
			return bench(bin, counts{*sizes, *shared, *held, *leases, *cluster, *returned, *pairs, *moved, *watched, *audited, *reached, *whereabouts}, *only, *which, *kept)
		})
	}
	if err == nil && *which == allWays {
		err = draw(*kept)
	}
	exit(err)
}

// allWays names all ways in the table of restores. A run with fewer is meant for work on those ways, and its figures
// are not kept.
const allWays = "abcd"

// exit ends the program.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// draw reads the file and draws its charts into the same directory.
func draw(kept string) error {
	r, err := results.Load(kept)
	if err != nil {
		return err
	}
	return r.Draw(filepath.Dir(kept))
}

// installed calls use with a directory that has copies of the programs. An installed program is also a copy. The kernel
// keeps a file from the linker in single pages of memory, and a copied file in larger ones, so a copy starts 0.1 ms
// sooner. Without copies, programs that were linked at different times would not be comparable.
func installed(bin string, use func(bin string) error) error {
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-bin-")
	if err != nil {
		return err
	}
	if err = os.CopyFS(dir, os.DirFS(bin)); err == nil {
		err = use(dir)
	}
	return removeAll(dir, err)
}

// counts are how many of each thing are measured. The texts are lists of numbers.
type counts struct {
	sizes, shared, held, leases, nodes, returned         string
	pairs, moved, watched, audited, reached, whereabouts int
}

func bench(bin string, of counts, only, which, kept string) error {
	// All files of the runs disappear with the mount namespace.
	if err := os.MkdirAll("/run/relink-bench", 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/relink-bench", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	system := fmt.Sprintf("Linux %s, %d cores, %s", kernelRelease(), runtime.NumCPU(), runtime.Version())
	fmt.Printf("%s\n\n", system)
	var lists [6][]int
	for i, list := range [][2]string{{"-sandboxes", of.sizes}, {"-shared", of.shared}, {"-held", of.held}, {"-leases", of.leases}, {"-nodes", of.nodes}, {"-returned", of.returned}} {
		var err error
		if lists[i], err = numbers(list[0], list[1]); err != nil {
			return err
		}
	}
	all, err := results.Load(kept)
	if err != nil {
		return err
	}
	all.System = system
	tables := []struct {
		name string
		make func() error
	}{
		{"attach", func() (err error) { all.Attach, all.AttachCrowded, err = benchAttach(bin, of.pairs); return err }},
		{"ipam", func() (err error) { all.IPAM, err = benchIPAM(bin, lists[2], of.pairs); return err }},
		{"restore", func() (err error) { all.Restore, err = benchRestore(bin, lists[0], lists[1], which); return err }},
		{"move", func() (err error) { all.Move, err = benchMove(bin, of.moved); return err }},
		{"agent", func() (err error) {
			if of.watched > 0 {
				all.Agent, err = benchAgent(bin, of.watched)
			}
			if err == nil {
				all.Returns, err = benchReturns(bin, lists[5])
			}
			return err
		}},
		{"recording", func() (err error) {
			all.Recording, err = benchRecording(bin, []int{of.watched, 4 * of.watched})
			return err
		}},
		{"audit", func() (err error) { all.Audit, err = benchAudit(bin, of.audited, lists[3]); return err }},
		{"pools", func() (err error) {
			all.Pools, err = benchPools(bin, poolCounts{of.pairs, of.whereabouts, lists[4]})
			return err
		}},
		{"hostaccess", func() error { return benchHostAccess(bin, of.pairs, of.reached, kept) }},
	}
	for _, table := range tables {
		if only != "" && only != table.name {
			continue
		}
		if err := table.make(); err != nil {
			return err
		}
	}
	if which != allWays {
		return nil
	}
	return all.Save(kept)
}

func numbers(flag, list string) ([]int, error) {
	var all []int
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, n)
	}
	return all, nil
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

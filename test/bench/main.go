// Command bench measures relink beside its peers, in one run, and writes tables for docs/benchmarks.md.
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

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

func main() {
	sizes := flag.String("sandboxes", "100,1000,5000", "numbers of sandboxes to restore")
	shared := flag.String("shared", "250,1000", "numbers of sandboxes to restore that are all on one parent")
	pairs := flag.Int("pairs", 200, "pairs of ADD and DEL")
	held := flag.String("held", "0,1000,10000,60000", "numbers of addresses that are held already")
	only := flag.String("only", "", "restore, attach or ipam: only this table")
	which := flag.String("ways", "abcd", "which of the ways to restore, while working on one")
	flag.Parse()
	bin, err := filepath.Abs("bin/test")
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		err = binaries.Build(bin)
	}
	if err == nil {
		fresh.Enter()
		err = installed(bin, func(bin string) error { return bench(bin, *sizes, *shared, *held, *pairs, *only, *which) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// installed has use run with a copy of the programs, as an installation is one. The kernel keeps what
// the linker wrote in single pages of memory, and what was copied in larger ones: a program of the
// same bytes starts 0.1 ms sooner as a copy. Some were linked long ago, some just now.
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

func bench(bin, sizes, shared, held string, pairs int, only, which string) error {
	// What the runs write goes away with the mount namespace.
	if err := os.MkdirAll("/run/relink-bench", 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/relink-bench", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	fmt.Printf("Linux %s, %d cores, %s\n\n", kernelRelease(), runtime.NumCPU(), runtime.Version())
	counts, err := numbers("-sandboxes", sizes)
	if err != nil {
		return err
	}
	onOneParent, err := numbers("-shared", shared)
	if err != nil {
		return err
	}
	leases, err := numbers("-held", held)
	if err != nil {
		return err
	}
	tables := []struct {
		name string
		make func() error
	}{
		{"attach", func() error { return benchAttach(bin, pairs) }},
		{"ipam", func() error { return benchIPAM(bin, leases, pairs) }},
		{"restore", func() error { return benchRestore(bin, counts, onOneParent, which) }},
	}
	for _, table := range tables {
		if only != "" && only != table.name {
			continue
		}
		if err := table.make(); err != nil {
			return err
		}
	}
	return nil
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

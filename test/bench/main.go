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
	pairs := flag.Int("pairs", 200, "pairs of ADD and DEL")
	only := flag.String("only", "", "restore or attach: only this table")
	which := flag.String("ways", "abcd", "which of the ways to restore, while working on one")
	flag.Parse()
	bin, err := filepath.Abs("bin/test")
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		err = binaries.Build(bin)
	}
	if err == nil {
		fresh.Enter()
		err = bench(bin, *sizes, *pairs, *only, *which)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(bin, sizes string, pairs int, only, which string) error {
	// What the runs write goes away with the mount namespace.
	if err := os.MkdirAll("/run/relink-bench", 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/relink-bench", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	fmt.Printf("Linux %s, %d cores, %s\n\n", kernelRelease(), runtime.NumCPU(), runtime.Version())
	if only != "restore" {
		if err := benchAttach(bin, pairs); err != nil {
			return err
		}
	}
	if only == "attach" {
		return nil
	}
	var counts []int
	for s := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("-sandboxes: %w", err)
		}
		counts = append(counts, n)
	}
	return benchRestore(bin, counts, which)
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

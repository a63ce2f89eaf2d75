package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Main is for a package's TestMain and does not return. In the guest it runs the tests. On the host it boots a machine
// that runs this very test binary, with the same arguments in the same directory, and exits with its status: 1 if the
// machine fails. Profiles and coverage data that `go test` asks for are written through to the host; of its environment
// the guest gets PATH, GOCOVERDIR and what begins with RELINK_, GORACE, GODEBUG or GOTRACEBACK.
func Main(m *testing.M) {
	if InGuest() {
		os.Exit(m.Run())
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := runSelf(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "test machine: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// runSelf runs this test binary in a machine.
func runSelf(ctx context.Context) (int, error) {
	binary, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding the test binary: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("finding the working directory: %w", err)
	}
	limit, err := testLimit(flag.Lookup("test.timeout").Value.String())
	if err != nil {
		return 0, err
	}
	args := guestArguments(os.Args[1:])
	return Run(ctx, Config{
		Command:  append([]string{binary}, args...),
		Env:      guestEnvironment(os.Environ()),
		Dir:      dir,
		Writable: writtenDirectories(dir, args, os.Getenv("GOCOVERDIR")),
		// A second emulated processor costs more than it does, see README.md.
		Processors: 1,
		TimeLimit:  limit,
	})
}

// bootAllowance is what a machine may take beyond its tests' own limit, so that the tests report running into it and
// not the machine. `go test` itself waits for a minute.
const bootAllowance = 45 * time.Second

// testLimit turns the value of -test.timeout, 0 for none, into a machine's limit.
func testLimit(timeout string) (time.Duration, error) {
	limit, err := time.ParseDuration(timeout)
	if err != nil {
		return 0, fmt.Errorf("reading -test.timeout: %w", err)
	}
	if limit == 0 {
		return 24 * time.Hour, nil
	}
	return limit + bootAllowance, nil
}

// guestArguments returns the arguments without -test.testlogfile: the log tells `go test` which files a result depends
// on, and a result from the guest is not to be kept anyway.
func guestArguments(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return name == "test.testlogfile"
	})
}

// passedOn are the beginnings of the variables' names that go from the host to the guest.
var passedOn = []string{"RELINK_", "PATH=", "GOCOVERDIR=", "GORACE=", "GODEBUG=", "GOTRACEBACK="}

func guestEnvironment(host []string) []string {
	return slices.DeleteFunc(slices.Clone(host), func(pair string) bool {
		ours := strings.HasPrefix(pair, "RELINK_VM=") || strings.HasPrefix(pair, "RELINK_VM_SHARE=")
		return ours || !slices.ContainsFunc(passedOn, func(start string) bool { return strings.HasPrefix(pair, start) })
	})
}

// writingFlags are those of a test binary's flags that name a file to write, or, if true, a directory to write to.
var writingFlags = map[string]bool{
	"test.coverprofile": false, "test.cpuprofile": false, "test.memprofile": false, "test.blockprofile": false,
	"test.mutexprofile": false, "test.trace": false, "test.gocoverdir": true, "test.outputdir": true,
}

// writtenDirectories returns the directories that a test binary run with these arguments in dir writes to.
func writtenDirectories(dir string, args []string, coverDir string) []string {
	values := map[string]string{}
	for _, arg := range args {
		if name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok && value != "" {
			values[name] = value
		}
	}
	files := dir // what a profile's path is relative to
	if output, ok := values["test.outputdir"]; ok {
		files = absolute(dir, output)
	}
	var written []string
	for name, isDirectory := range writingFlags {
		value, ok := values[name]
		switch {
		case !ok:
		case isDirectory:
			written = append(written, absolute(dir, value))
		default:
			written = append(written, filepath.Dir(absolute(files, value)))
		}
	}
	if coverDir != "" {
		written = append(written, absolute(dir, coverDir))
	}
	slices.Sort(written)
	return slices.Compact(written)
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

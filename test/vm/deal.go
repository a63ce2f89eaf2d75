package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// mostMachines bounds what is dealt out at once, for the sake of the host's memory.
	mostMachines = 4
	// testPatience is how long one test may take. It is for a host that is busy otherwise.
	testPatience = 20 * time.Minute
)

// Deal runs the subtests of t with these names, which are there in the guest, and nothing of t here. It deals them out to
// machines of one processor each, as many as -test.parallel says and four at most: who is done gets the next in the order
// of names. In the guest this very test binary runs that subtest alone. A machine whose subtest has failed, or has called
// Spend, is not used again.
func Deal(t *testing.T, names []string) {
	t.Helper()
	DealOn(t, Config{}, names)
}

// DealOn is Deal for machines of this kind. It sets their processors and their time limit.
func DealOn(t *testing.T, kind Config, names []string) {
	t.Helper()
	kind.Processors, kind.TimeLimit = 1, 24*time.Hour
	next := make(chan string, len(names))
	for _, name := range names {
		next <- name
	}
	close(next)
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var workers sync.WaitGroup
	for range min(mostMachines, parallel(), len(names)) {
		workers.Go(func() { work(ctx, t, kind, next) })
	}
	workers.Wait()
}

// parallel is the value of -test.parallel.
func parallel() int {
	n, ok := flag.Lookup("test.parallel").Value.(flag.Getter).Get().(int)
	if !ok || n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}

// work runs subtests until there are no more, all that it can in one machine.
func work(ctx context.Context, t *testing.T, kind Config, next <-chan string) {
	var session *Session
	closeSession := func() {
		if session != nil {
			session.Close()
			session = nil
		}
	}
	defer closeSession()
	for name := range next {
		t.Run(name, func(t *testing.T) { // It does nothing for a name that -test.run leaves out.
			if session == nil {
				session = boot(ctx, t, kind)
			}
			defer func() {
				if t.Failed() || session != nil && session.Spent() {
					closeSession()
				}
			}()
			runInGuest(ctx, t, session)
		})
	}
}

// boot boots a machine that outlives the subtest. A command that finds nothing runs to see that it is there.
func boot(ctx context.Context, t *testing.T, kind Config) *Session {
	t.Helper()
	session, err := Open(ctx, kind)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := session.Run(ctx, Config{Command: []string{"true"}}); err != nil {
		session.Close()
		t.Fatalf("test machine: %v", err)
	}
	return session
}

// runInGuest runs in the machine the subtest that the host is in.
func runInGuest(ctx context.Context, t *testing.T, session *Session) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, testPatience+bootAllowance, ErrTimeLimit)
	defer stop()
	output, code, err := session.Run(ctx, Config{
		Command: []string{executable(t), "-test.run=" + Exactly(t.Name()), "-test.v", "-test.timeout=" + testPatience.String()},
		Env:     guestEnvironment(os.Environ()),
		Dir:     dir,
	})
	if err := verdict(t.Name(), output, code, err); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if testing.Verbose() {
		t.Logf("\n%s", output)
	}
}

// verdict is why what the machine ran is no success of that test.
func verdict(name, output string, code int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("test machine: %w", err)
	case code != 0:
		return fmt.Errorf("exit status %d in the test machine", code)
	case !strings.Contains(output, "--- PASS: "+name+" "):
		return errors.New("it did not run in the test machine")
	}
	return nil
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(fmt.Errorf("finding the test binary: %w", err))
	}
	return path
}

// Exactly returns the value of -test.run for the one test of this name.
func Exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

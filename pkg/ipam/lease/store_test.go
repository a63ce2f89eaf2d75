package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/flock"
)

// lockStore locks the store as another program does. It returns a function that unlocks it.
func (n *node) lockStore(t *testing.T) (file *os.File, letGo func()) {
	t.Helper()
	f, err := os.Open(n.path())
	must(t, err)
	must(t, flock.Try(f, flock.Exclusive))
	return f, func() { must(t, f.Close()) }
}

// waitUntilOpened returns once somebody other than the test has the file open.
func (n *node) waitUntilOpened(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		open := 0
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, fd := range fds {
			if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && target == n.path() {
				open++
			}
		}
		if open > 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the store")
		}
	}
}

// Somebody restores a backup while others wait for the store. The others change the new file, not the one that is gone.
func TestStoreThatIsExchangedWhileItIsWaitedFor(t *testing.T) {
	replace := func(t *testing.T, n *node, by string) { must(t, os.Rename(by, n.path())) }
	for name, test := range map[string]struct {
		// exchange runs while the operation waits. The backup has 10.3.0.2, held by c1.
		exchange func(t *testing.T, n *node, backup string)
		is       error
		msg      string
		// given are the addresses that an ADD gives.
		given string
		after []string
	}{
		"a backup takes its place": {
			func(t *testing.T, n *node, backup string) { replace(t, n, backup) },
			nil, "<nil>", "10.3.0.3", []string{"10.3.0.2 held c1/eth0", "10.3.0.3 held new/eth0"},
		},
		"nothing is there any more": {
			func(t *testing.T, n *node, _ string) { must(t, os.Remove(n.path())) },
			ErrMoved, "store DIR/pods.db: somebody moved it away while it was waited for", "", nil,
		},
		"it is moved away": {
			func(t *testing.T, n *node, _ string) { must(t, os.Rename(n.path(), n.path()+".old")) },
			ErrMoved, "store DIR/pods.db: somebody moved it away while it was waited for", "", nil,
		},
		"a text takes its place": {
			func(t *testing.T, n *node, backup string) {
				must(t, os.WriteFile(backup, []byte(strings.Repeat("10.3.0.2 c1\n", 2000)), 0o600))
				replace(t, n, backup)
			}, ErrDamaged, "store DIR/pods.db: not usable: invalid database", "", nil,
		},
		"an empty file takes its place": {
			func(t *testing.T, n *node, backup string) {
				must(t, os.WriteFile(backup, nil, 0o600))
				replace(t, n, backup)
			}, ErrDamaged, "store DIR/pods.db: not usable: invalid database: it was cut short to 0 bytes", "", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			n.add(t, "c1/eth0", "", "10.3.0.2")
			backup := n.path() + ".backup"
			copyFile(t, n.path(), backup)
			n.add(t, "c2/eth0", "", "10.3.0.3")
			must(t, os.Link(n.path(), n.path()+".as-it-was"))
			was := sumOf(t, n.path())

			_, letGo := n.lockStore(t)
			s, given, done := n.store(t), "", make(chan error)
			go func() {
				leases, err := s.Allocate(t.Context(), n.request("new/eth0", ""))
				if err == nil {
					given = leases[0].Address.String()
				}
				done <- err
			}()
			n.waitUntilOpened(t)
			test.exchange(t, n, backup)
			letGo()
			err := <-done
			if given != test.given {
				t.Errorf("given %q, want %q", given, test.given)
			}
			n.refused(t, "ADD", err, test.is, test.msg)
			if sumOf(t, n.path()+".as-it-was") != was {
				t.Error("it has changed the file that is gone")
			}
			if test.is == nil {
				n.expect(t, "after it", test.after...)
			}
			if _, err := os.Stat(n.path()); errors.Is(test.is, ErrMoved) && err == nil {
				t.Error("it has made a store where somebody moved it away")
			}
		})
	}
}

// A DEL and a look also wait for the store.
func TestDelAndLookOfAStoreThatIsExchanged(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	backup := n.path() + ".backup"
	copyFile(t, n.path(), backup)
	n.add(t, "c2/eth0", "", "10.3.0.3")
	for name, test := range map[string]struct {
		operation func(*Store) error
		want      []string
	}{
		"DEL": {
			func(s *Store) error { return s.Release(t.Context(), n.key("c1/eth0"), Policy{}) },
			[]string{"10.3.0.2 quarantined c1/eth0"},
		},
		"list": {
			func(s *Store) error {
				all, err := s.List(t.Context())
				if len(all) != 1 {
					return fmt.Errorf("%d leases, %w", len(all), err)
				}
				return err
			},
			[]string{"10.3.0.2 held c1/eth0"},
		},
	} {
		copyFile(t, backup, backup+".again")
		_, letGo := n.lockStore(t)
		s, done := n.store(t), make(chan error)
		go func() { done <- test.operation(s) }()
		n.waitUntilOpened(t)
		must(t, os.Rename(backup+".again", n.path()))
		letGo()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n.expect(t, name, test.want...)
	}
}

// A backup is put back while nobody waits. From then on it is the store.
func TestStoreThatIsPutBack(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	copyFile(t, n.path(), n.path()+".backup")
	n.del(t, "c1/eth0")
	n.later(time.Hour)
	n.reboot("boot-2", time.Minute)
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	must(t, os.Rename(n.path()+".backup", n.path()))
	n.expect(t, "by a look in another boot", "10.3.0.2 reserved c1/eth0 web-0")
	n.add(t, "c3/eth0", "web-0", "10.3.0.2")
	n.expect(t, "after an ADD", "10.3.0.2 held c3/eth0 web-0")
}

func TestWaitForTheStoreIsBounded(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	f, letGo := n.lockStore(t)
	s := n.store(t)
	s.wait = time.Millisecond
	busy := "store DIR/pods.db: in use by another process (held by " + flock.HoldersOf(f)[0] + ") for more than 1ms"
	_, err := s.Allocate(t.Context(), n.request("c2/eth0", ""))
	n.refused(t, "ADD", err, ErrBusy, busy)
	n.refused(t, "DEL", s.Release(t.Context(), n.key("c1/eth0"), Policy{}), ErrBusy, busy)
	_, err = s.List(t.Context())
	n.refused(t, "list", err, ErrBusy, busy)
	letGo()
	n.add(t, "c2/eth0", "", "10.3.0.3")
}

// A long wait names the network and the holder. A short one is not reported.
func TestALongWaitForTheStoreIsTold(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	f, letGo := n.lockStore(t)
	holder := flock.HoldersOf(f)[0]
	s := n.store(t)
	var told []string
	s.OnWait(func(line string) { told = append(told, line) })
	s.wait = flock.NoticeAfter / 10
	for short := false; !short; { // A busy machine can make a long wait of it.
		told = nil
		start := time.Now()
		if _, err := s.List(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want %v", err, ErrBusy)
		}
		if short = time.Since(start) < flock.NoticeAfter; short && len(told) > 0 {
			t.Errorf("a short wait: %q", told)
		}
	}
	told, s.wait = nil, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.OnWait(func(line string) { // It goes on for a while, so that it could be told again.
		told = append(told, line)
		time.AfterFunc(flock.NoticeAfter/2, cancel)
	})
	if _, err := s.List(ctx); !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want %v", err, ErrBusy)
	}
	letGo()
	if want := []string{"waiting for the lock of the addresses of pods (held by " + holder + ")"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv(DirEnv, "")
	for name, test := range map[string]struct {
		dir, env, network string
		want, why         string
	}{
		"default":                {"", "", "pods", DefaultDir + "/pods.db", ""},
		"a directory":            {"/run/x", "/run/y", "pods", "/run/x/pods.db", ""},
		"of the environment":     {"", "/run/y", "pods", "/run/y/pods.db", ""},
		"a relative one of that": {"", "y", "pods", "", `invalid RELINK_IPAM_DIR: "y": must be an absolute path`},
		"a path for a name":      {"/run/x", "", "../pods", "", `network "../pods": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`},
		"no name":                {"/run/x", "", "", "", `network "": is empty`},
		"the longest name":       {"/run/x", "", strings.Repeat("n", maxName), "/run/x/" + strings.Repeat("n", maxName) + ".db", ""},
		"a longer one": {"/run/x", "", strings.Repeat("n", maxName+1), "",
			fmt.Sprintf("network %q: has 248 characters: a file's name has room for 247", strings.Repeat("n", maxName+1))},
	} {
		t.Setenv(DirEnv, test.env)
		s, err := Open(test.dir, test.network)
		switch {
		case err != nil:
			if err.Error() != test.why {
				t.Errorf("%s: %v, want %s", name, err, test.why)
			}
		case test.why != "" || s.path != test.want || s.Network() != test.network:
			t.Errorf("%s: %s of %s, want %s %s", name, s.path, s.Network(), test.want, test.why)
		}
	}
}

func TestLongestNameOfANetworkHasAStore(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.network = strings.Repeat("n", maxName)
	n.add(t, "c1/eth0", "", "10.3.0.2")
}

func TestNetworksAreWhatHasAStore(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	if all, err := Networks(filepath.Join(n.dir, "none")); err != nil || len(all) > 0 {
		t.Errorf("without a directory: %v, %v", all, err)
	}
	for _, name := range []string{"pods", "b.c", "a"} {
		n.network = name
		n.add(t, "c1/eth0", "", "10.3.0.2")
	}
	for _, other := range []string{".a.db.new", "x.db.backup", "-.db", ".db", "lock"} {
		must(t, os.WriteFile(filepath.Join(n.dir, other), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(n.dir, "dir.db"), 0o700))
	// This store is on another disk.
	must(t, os.Rename(filepath.Join(n.dir, "a.db"), filepath.Join(n.dir, "elsewhere")))
	must(t, errors.Join(os.Symlink("elsewhere", filepath.Join(n.dir, "a.db")), os.Symlink("missing", filepath.Join(n.dir, "broken.db"))))
	n.network = "a"
	n.add(t, "c2/eth0", "", "10.3.0.3")
	all, err := Networks(n.dir)
	if diff := cmp.Diff([]string{"a", "b.c", "pods"}, all); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Before the first ADD nothing exists, and neither a look nor a DEL creates anything.
func TestNothingIsMadeBeforeTheFirstAdd(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.dir = filepath.Join(n.dir, "ipam")
	for what, operation := range n.operations(t) {
		if what == "ADD" || what == "reserve" || what == "take in" || what == "take in, dry" {
			continue
		}
		n.refused(t, what, operation(), ErrNotLeased, "network pods: nothing is leased (no DIR/pods.db)")
	}
	if err := n.operations(t)["take in, dry"](); err != nil {
		t.Errorf("an import that only looks: %v", err)
	}
	if _, err := os.Stat(n.dir); err == nil {
		t.Error("the directory was made")
	}
	n.add(t, "c1/eth0", "", "10.3.0.2")
	for path, mode := range map[string]os.FileMode{n.dir: 0o700, n.path(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %s", path, info.Mode(), err, mode)
		}
	}
	if files, err := os.ReadDir(n.dir); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}

// A directory can refuse root although its mode allows root to write. Only a try shows that.
func TestWritableTries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for dir, want := range map[string]string{
		"/proc/y":                            "store /proc/y/pods.db cannot be written: mkdir /proc/y: no such file or directory",
		"/proc":                              "store /proc/pods.db cannot be written: open /proc/.usable-",
		filepath.Join(file, "dir"):           "store " + file + "/dir/pods.db cannot be written: ",
		filepath.Join(t.TempDir(), "a", "b"): "",
	} {
		s, err := Open(dir, "pods")
		must(t, err)
		if err = s.Writable(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
		if left, _ := os.ReadDir(dir); want == "" && len(left) > 0 {
			t.Errorf("%s: it left %v", dir, left)
		}
	}
}

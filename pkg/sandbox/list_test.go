package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
)

// The tests of other packages make namespaces at the same time, and the kernel uses a number anew that has got free. So no
// process of theirs is seen.
func TestMain(m *testing.M) {
	fresh.EnterAlone()
	os.Exit(m.Run())
}

func TestParseMounts(t *testing.T) {
	const mountinfo = `22 1 0:21 / /proc rw,nosuid shared:12 - proc proc rw
500 30 0:4 net:[4026532287] /run/netns/web rw shared:7 - nsfs nsfs rw
501 30 0:4 net:[4026532288] /run/netns/with\040space rw shared:7 master:3 - nsfs nsfs rw
502 30 0:4 net:[4026532289] /run/netns/plain rw - nsfs nsfs rw
503 30 0:4 mnt:[4026532290] /run/snapd/ns/x.mnt rw - nsfs nsfs rw
504 30 0:4 net:[what] /run/netns/odd rw - nsfs nsfs rw
505 30 8:1 net:[4026532291] /a/file/of/that/name rw - ext4 /dev/sda1 rw
506 30 0:4 net:[4026532292] /back\134slash\ rw - nsfs nsfs rw
short
`
	got := parseMounts([]byte(mountinfo))
	want := []mount{
		{"/run/netns/web", 4026532287}, {"/run/netns/with space", 4026532288}, {"/run/netns/plain", 4026532289},
		{`/back\slash\`, 4026532292},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Error(diff)
	}
}

func TestMerge(t *testing.T) {
	host, a, b, c := attachment.NamespaceFile{Device: 4, Inode: 1}, attachment.NamespaceFile{Device: 4, Inode: 2}, attachment.NamespaceFile{Device: 4, Inode: 3}, attachment.NamespaceFile{Device: 5, Inode: 2}
	for name, test := range map[string]struct {
		seen []foundPath
		want []Sandbox
	}{
		"nothing": {nil, nil},
		"the host is none": {
			[]foundPath{{host, "/proc/1/ns/net", 1}, {host, "/run/netns/host", 0}}, nil,
		},
		"a mount before a process, the oldest process first": {
			[]foundPath{{a, "/proc/900/ns/net", 900}, {a, "/proc/31/ns/net", 31}, {a, "/run/netns/a", 0}},
			[]Sandbox{{a, []string{"/run/netns/a", "/proc/31/ns/net", "/proc/900/ns/net"}}},
		},
		"/run/netns before other mounts": {
			[]foundPath{{a, "/a", 0}, {a, "/var/run/netns/a", 0}, {a, "/run/netns/z", 0}},
			[]Sandbox{{a, []string{"/run/netns/z", "/var/run/netns/a", "/a"}}},
		},
		"a path that is mounted twice is one": {
			[]foundPath{{a, "/run/netns/a", 0}, {a, "/run/netns/a", 0}},
			[]Sandbox{{a, []string{"/run/netns/a"}}},
		},
		"told apart by device and inode, in the order of their paths": {
			[]foundPath{{b, "/proc/7/ns/net", 7}, {c, "/run/netns/c", 0}, {a, "/run/netns/a", 0}},
			[]Sandbox{{a, []string{"/run/netns/a"}}, {c, []string{"/run/netns/c"}}, {b, []string{"/proc/7/ns/net"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, merge(test.seen, map[attachment.NamespaceFile]bool{host: true})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func list(t *testing.T) []Sandbox {
	t.Helper()
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// at returns the sandbox with the path, or nil.
func at(all []Sandbox, path string) *Sandbox {
	if i := slices.IndexFunc(all, func(s Sandbox) bool { return slices.Contains(s.Paths, path) }); i >= 0 {
		return &all[i]
	}
	return nil
}

func TestListFindsWhatIsMountedAndWhatAProcessIsIn(t *testing.T) {
	mounted := fresh.Sandbox(t)
	held := fresh.Start(t, "nsenter", "--net="+mounted, "sh", "-c", "echo; exec sleep 60")
	lone := fresh.Start(t, "unshare", "--net", "sh", "-c", "echo; exec sleep 60")
	proc := func(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }
	waitFor(t, func() bool {
		all := list(t)
		return at(all, proc(held)) != nil && at(all, proc(lone)) != nil
	})
	all := list(t)
	if s := at(all, mounted); s == nil || s.Paths[0] != mounted || !slices.Contains(s.Paths, proc(held)) {
		t.Errorf("mounted: %+v", s)
	}
	if s := at(all, proc(lone)); s == nil || len(s.Paths) != 1 {
		t.Errorf("of a process: %+v", s)
	}
	for _, host := range []string{"/proc/1/ns/net", "/proc/" + fmtSelf() + "/ns/net"} {
		if s := at(all, host); s != nil {
			t.Errorf("the host is a sandbox: %+v", s)
		}
	}
}

func TestListWithoutWhatIsNoNamespace(t *testing.T) {
	over := fresh.Sandbox(t)
	fresh.Run(t, "", "mount -t tmpfs none "+filepath.Dir(over))
	t.Cleanup(func() { fresh.Run(t, "", "umount "+filepath.Dir(over)) })
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := at(list(t), over); s != nil {
		t.Errorf("a plain file over it: %+v", s)
	}
}

// List works while processes start and end.
func TestListWhileProcessesComeAndGo(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command("unshare", "--net", "true").Run()
			}
		}
	}()
	for range 50 {
		for _, s := range list(t) {
			if len(s.Paths) == 0 || s.Inode == 0 {
				t.Errorf("%+v", s)
			}
		}
	}
	close(stop)
	<-stopped
}

// A process that may not see the namespace of another one learns that there is such a process.
func TestHidden(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if hidden, err := Hidden(); err != nil || slices.Contains(hidden, cmd.Process.Pid) {
		t.Errorf("from root: %v, %v", hidden, err)
	}
	var hidden []int
	var err error
	fresh.AsNobody(t, func() { hidden, err = Hidden() })
	if err != nil || !slices.Contains(hidden, cmd.Process.Pid) || slices.Contains(hidden, 1) {
		t.Errorf("from nobody: %v, %v", hidden, err)
	}
}

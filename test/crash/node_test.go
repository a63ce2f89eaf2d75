package crash

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// node is a host with a parent, lan0, and with its own store, cache and leases.
type node struct {
	dir   string
	store *checkpoint.Store
	// env is added to the environment of every program.
	env []string
	// programs is the directory of the plugin. delegates is the directory of the plugins that it calls. Empty means
	// bin.
	programs, delegates string
	// ipam replaces the usual delegate.
	ipam string
}

func newNode(t *testing.T) *node {
	t.Helper()
	makeParent(t)
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	dir := t.TempDir()
	n := &node{dir: dir, store: checkpoint.OpenStore(filepath.Join(dir, "checkpoints"))}
	for _, d := range []string{n.store.Dir(), n.cache()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *node) cache() string  { return filepath.Join(n.dir, "cache") }
func (n *node) leases() string { return filepath.Join(n.dir, "ipam") }

func makeParent(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link add lan0 up type veth peer name lan1; ip link set lan1 up")
}

// loseParent deletes lan0, and with it everything on it. Then it makes lan0 again.
func loseParent(t *testing.T) { replaceParent(t, "lan0", "lan0") }

// replaceParent deletes the parent and makes it again under a name, with more words for ip(8). It returns once the
// kernel lets the parent send. Otherwise a restore would sometimes have more to remember, depending on the moment.
func replaceParent(t *testing.T, was, is string, more ...string) {
	t.Helper()
	fresh.Run(t, "", strings.NewReplacer("WAS", was, "IS", is, "MORE", strings.Join(more, " ")).Replace(
		"ip link del WAS; ip link add IS MORE up type veth peer name lan1; ip link set lan1 up; "+
			"until ip link show IS | grep -q 'state UP'; do sleep 0.01; done"))
}

// pod is an attachment as its runtime knows it.
type pod struct {
	*node
	id, ifName, netns string
	// name is the pod's name in Kubernetes. If it is empty, the container's ID is used.
	name string
	// chained says that the reference plugin attaches the pod, followed by relink-checkpoint.
	chained bool
	// ipam replaces the usual delegate.
	ipam string
}

func (n *node) newPod(t *testing.T, id string, chained bool) *pod {
	t.Helper()
	return &pod{node: n, id: id, ifName: "eth0", netns: fresh.Sandbox(t), chained: chained}
}

// loseSandbox ends the pod's sandbox, and nothing is detached. The pod then has an empty one for what is called next.
func (p *pod) loseSandbox(t *testing.T) {
	t.Helper()
	testnode.EndSandbox(t, p.netns)
	p.netns = fresh.Sandbox(t)
}

// plugin prepares a call of a plugin.
func (p *pod) plugin(name, command, keys string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(cmp.Or(p.programs, bin), name))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + cmp.Or(p.delegates, bin), "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.id,
		"CNI_NETNS=" + p.netns, "CNI_IFNAME=" + p.ifName, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + cmp.Or(p.name, p.id),
		allEnv + "=1",
	}, p.env...)
	ipam := cmp.Or(p.ipam, p.node.ipam)
	if ipam == "" {
		ipam = fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/16"}]], "routes": [{"dst": "10.0.0.0/8"}]}`, p.leases())
	}
	if name != "relink-checkpoint" {
		keys = `, "master": "lan0", "ipam": ` + ipam + keys
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.1.0", "name": "lan", "type": %q, "checkpointDir": %q%s}`, name, p.store.Dir(), keys))
	return cmd
}

// patience is how long a program may take, whatever the others do. It is shorter than any wait for a lock.
const patience = 25 * time.Second

// finish runs the program. It waits no longer than patience.
func finish(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !hung.Stop() {
		return fmt.Errorf("it hung for %s: %w", patience, err)
	}
	return err
}

// output runs the program and returns its output.
func output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := finish(cmd); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd.Path, err, &out, &errs)
	}
	if errs.Len() > 0 {
		return "", fmt.Errorf("%s: said on stderr: %s", cmd.Path, &errs)
	}
	return out.String(), nil
}

// addLast does the first steps of an ADD and prepares the last one.
func (p *pod) addLast() (*exec.Cmd, error) {
	if !p.chained {
		return p.plugin("relink-macvlan", "ADD", ""), nil
	}
	result, err := output(p.plugin("macvlan", "ADD", ""))
	return p.plugin("relink-checkpoint", "ADD", `, "prevResult": `+result), err
}

// delFirst prepares the first step of DEL.
func (p *pod) delFirst() *exec.Cmd {
	if p.chained {
		return p.plugin("relink-checkpoint", "DEL", "")
	}
	return p.plugin("relink-macvlan", "DEL", "")
}

func (p *pod) add() error {
	cmd, err := p.addLast()
	if err == nil {
		_, err = output(cmd)
	}
	return err
}

func (p *pod) del() error {
	_, err := output(p.delFirst())
	if err != nil || !p.chained {
		return err
	}
	_, err = output(p.plugin("macvlan", "DEL", ""))
	if err != nil && strings.Contains(err.Error(), "no such device") {
		// The loss of the parent removed the interface between the reference plugin's look and its deletion. A runtime
		// repeats DEL until it succeeds.
		_, err = output(p.plugin("macvlan", "DEL", ""))
	}
	return err
}

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command prepares a run of relink.
func (n *node) command(args string) *exec.Cmd {
	words := strings.Fields(args)
	if words[0] == "capture" || words[0] == "check" {
		words = append(words, "--cni-cache", n.cache())
	}
	cmd := exec.Command(filepath.Join(bin, "relink"), append([]string{"--checkpoint-dir", n.store.Dir()}, words...)...)
	cmd.Env = append(append(os.Environ(), allEnv+"=1"), n.env...)
	return cmd
}

// says runs relink and expects this exit status, and each of the parts in its output.
func (n *node) says(t *testing.T, status int, args string, parts ...string) string {
	t.Helper()
	cmd := n.command(args)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := finish(cmd)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("relink %s: status %d, wanted %d\n%s", args, got, status, &out)
	}
	for _, part := range parts {
		if !strings.Contains(out.String(), part) {
			t.Errorf("relink %s does not say %q:\n%s", args, part, &out)
		}
	}
	return out.String()
}

// restored runs a restore, and checks that everything that is remembered is then complete.
func (n *node) restored(t *testing.T) {
	t.Helper()
	n.says(t, 0, "restore --wait 5s")
	out := n.says(t, 0, "restore --dry-run")
	for _, state := range []string{"to restore", "to repair", "sandbox gone", "failed", "other problems"} {
		if strings.Contains(out, state) {
			t.Errorf("not whole after a restore:\n%s", out)
		}
	}
}

// held returns the container IDs that hold an address of host-local or of relink-ipam, once for each address.
func (n *node) held(t *testing.T) []string {
	t.Helper()
	if n.ipam != "" {
		return n.leased(t)
	}
	files, err := filepath.Glob(filepath.Join(n.leases(), "lan", "10.9.*"))
	must(t, err)
	var ids []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		id, _, _ := strings.Cut(string(b), "\r\n")
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// links returns the interfaces of the namespace. An empty path means the host's.
func links(t *testing.T, netns string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(fresh.Run(t, netns, "ip -o link 2>/dev/null")) { // It complains of a namespace that has no number there.
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		names = append(names, strings.TrimSuffix(name, ":"))
	}
	slices.Sort(names)
	return names
}

// temporary returns the files in the store that should not stay there: neither checkpoints, nor locks, nor the notes
// that something is being detached.
func (n *node) temporary(t *testing.T) []string {
	t.Helper()
	var left []string
	err := filepath.WalkDir(n.store.Dir(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".detaching":
			return fs.SkipDir
		case slices.Contains([]string{".lock", ".parents.lock", ".host.lock", ".restoring", ".restoring.lock", ".saves.lock"}, d.Name()):
		case strings.HasPrefix(d.Name(), "."):
			left = append(left, path)
		}
		return nil
	})
	must(t, err)
	return left
}

// nothingTemporary expects that nothing temporary is left.
func (n *node) nothingTemporary(t *testing.T) {
	t.Helper()
	if left := n.temporary(t); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	if got := links(t, ""); !slices.Equal(got, []string{"lan0", "lan1", "lo"}) {
		t.Errorf("the host has %v", got)
	}
}

// gone expects that nothing is left of the pod.
func (p *pod) gone(t *testing.T) {
	t.Helper()
	p.nothingTemporary(t)
	if got := links(t, p.netns); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("the sandbox has %v", got)
	}
	if slices.Contains(p.held(t), p.id) {
		t.Error("it holds an address")
	}
	if left, _ := filepath.Glob(filepath.Join(p.store.Dir(), p.id)); len(left) > 0 {
		t.Errorf("its directory is left")
	}
	if left, _ := filepath.Glob(filepath.Join(p.store.Dir(), "ns-*")); len(left) > 0 {
		t.Errorf("a checkpoint of nobody's is left: %v", left)
	}
}

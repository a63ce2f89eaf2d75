package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { node.Main(m) }

// directories gives the node directories of the test's own. /run/netns is shared with other mount namespaces, as systemd
// and container runtimes make it.
func directories(t *testing.T) {
	t.Helper()
	const own = "/run /var/lib/cni /opt/cni/bin"
	fresh.Run(t, "", "for d in "+own+"; do mkdir -p $d; mount -t tmpfs -o mode=0755 own $d; done; "+
		"mkdir /run/netns; mount -t tmpfs --make-shared own /run/netns")
	t.Cleanup(func() { fresh.Run(t, "", "umount /run/netns; umount "+own) })
}

// agent is the DaemonSet's container, and its pod.
func agent(t *testing.T) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	pod := daemonSet(t, "base").Spec.Template.Spec
	return pod, pod.Containers[0]
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// The init container puts the plugins in place, and does so again beside plugins that run.
func TestInitContainer(t *testing.T) {
	directories(t)
	pod := daemonSet(t, "base").Spec.Template.Spec
	for range 2 {
		out, status := newContainer(t, pod, pod.InitContainers[0]).run(t)
		if status != 0 {
			t.Fatalf("status %d\n%s", status, out)
		}
	}
	for _, name := range []string{"relink-macvlan", "relink-vlan", "relink-ipam", "relink-checkpoint", "relink-host-access"} {
		fresh.Run(t, "", "cmp /opt/cni/bin/"+name+" "+filepath.Join(node.Bin, name)+" && test -x /opt/cni/bin/"+name)
	}
	if files, err := os.ReadDir("/opt/cni/bin"); err != nil || len(files) != 5 {
		t.Errorf("%v, %v", files, err)
	}
}

// Without one of its rights the agent says which, and what to do.
func TestEachRightMissing(t *testing.T) {
	directories(t)
	pod, c := agent(t)
	for _, name := range c.SecurityContext.Capabilities.Add {
		less := *c.DeepCopy()
		less.SecurityContext.Capabilities.Add = slices.DeleteFunc(less.SecurityContext.Capabilities.Add, func(n corev1.Capability) bool { return n == name })
		out, status := newContainer(t, pod, less).run(t)
		if status != 77 || !strings.Contains(out, "CAP_"+string(name)+" is missing: the agent needs it to ") ||
			!strings.Contains(out, "or "+string(name)+" to securityContext.capabilities.add of the DaemonSet") || strings.Count(out, "is missing") != 1 {
			t.Errorf("without %s: status %d\n%s", name, status, out)
		}
	}
	less := *c.DeepCopy()
	less.Env = nil
	out, status := newContainer(t, pod, less).run(t)
	if status != 77 || !strings.Contains(out, "/proc/sys/net is read-only: in a container, mount the node's /proc/sys elsewhere and name it in RELINK_PROC_SYS") {
		t.Errorf("without the node's /proc/sys: status %d\n%s", status, out)
	}
}

// The agent runs with exactly the rights and mounts of the DaemonSet. It sees network namespaces that come after its
// start. When a pod is deleted, its namespace ends: the agent does not keep it.
func TestPodsComeAndGo(t *testing.T) {
	directories(t)
	pod, c := agent(t)
	made := newContainer(t, pod, c)
	cmd, out := made.start(t)
	await(t, "the agent", func() bool { return strings.Contains(out.String(), "relink-agent starts") || cmd.ProcessState != nil })
	sees := func(name string) bool {
		b, err := os.ReadFile("/proc/" + made.pid(t) + "/mountinfo")
		return err == nil && strings.Contains(string(b), "/run/netns/"+name+" ")
	}
	for _, name := range []string{"a", "b", "c"} {
		path := "/run/netns/" + name
		if err := fresh.Make(path); err != nil {
			t.Fatal(err)
		}
		// The pair's end in the host goes with the namespace, and shows that it has died.
		fresh.Run(t, "", "ip link add pair-"+name+" type veth peer name eth0 && ip link set eth0 netns "+path)
		await(t, path+" in the container", func() bool { return sees(name) })
		if err := syscall.Unmount(path, 0); err != nil {
			t.Fatalf("%s cannot be unmounted: %v", path, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatalf("%s cannot be deleted: %v", path, err)
		}
		if sees(name) {
			t.Errorf("%s is still mounted in the container", path)
		}
		await(t, "the end of "+path, func() bool { return exec.Command("ip", "link", "show", "pair-"+name).Run() != nil })
	}
	if err := exec.Command("runc", "--root", made.runcRoot, "kill", made.id, "TERM").Run(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "relink-agent ends in order") {
		t.Errorf("%v\n%s", err, out)
	}
}

// attach runs relink-macvlan for a pod, as containerd and CRI-O do: they name the namespace below /var/run, which is a link
// on the node. It returns the path of the namespace.
func attach(t *testing.T) string {
	t.Helper()
	fresh.At(t, "/run/netns/cni-web")
	const config = `{"cniVersion":"1.1.0","name":"lan","type":"relink-macvlan","master":"lan0","ipam":{"type":"static","addresses":[{"address":"10.3.0.2/24"}]}}`
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=/var/run/netns/cni-web", "CNI_IFNAME=eth0", "CNI_PATH=" + node.Bin, "PATH=" + node.Bin}
	cmd.Stdin = strings.NewReader(config)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "/run/netns/cni-web"
}

// The agent's container has no link from /var/run to /run. All the same the agent keeps the checkpoints fresh, and relink check
// finds nothing to do: also where a checkpoint names /var/run, and where only /run/netns is mounted.
func TestFreshInTheContainer(t *testing.T) {
	directories(t)
	node.New(t)
	path := attach(t)
	store := checkpoint.OpenStore("/run/relink/checkpoints")
	record, err := store.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if record.Namespace.Path != path {
		t.Errorf("the checkpoint names %s, want %s", record.Namespace.Path, path)
	}
	pod, whole := agent(t)
	less := *whole.DeepCopy()
	less.VolumeMounts = slices.DeleteFunc(less.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/var/run/netns" })
	for name, test := range map[string]struct {
		container corev1.Container
		path      string
		route     string
	}{
		"as it is":         {whole, path, "10.70.0.0/24"},
		"below /var/run":   {whole, "/var" + path, "10.71.0.0/24"},
		"/run/netns alone": {less, "/var" + path, "10.72.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			record, err := store.Load("c1", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			record.Namespace.Path = test.path
			if err := store.Save(record); err != nil {
				t.Fatal(err)
			}
			made := newContainer(t, pod, test.container)
			cmd, out := made.start(t)
			await(t, "the agent", func() bool { return strings.Contains(out.String(), "relink-agent starts") || cmd.ProcessState != nil })
			fresh.Run(t, path, "ip route add "+test.route+" dev eth0")
			await(t, test.route+" in the checkpoint", func() bool {
				record, err := store.Load("c1", "eth0")
				return err == nil && slices.ContainsFunc(record.Interface.Routes, func(r netstate.Route) bool { return r.Destination.String() == test.route })
			})
			check := *test.container.DeepCopy()
			check.Command = []string{"/relink", "check"}
			said, status := newContainer(t, pod, check).run(t)
			if status != 0 || !strings.Contains(said, "1 attachment as recorded, 0 not") || strings.Contains(said, "not at") {
				t.Errorf("relink check: status %d\n%s", status, said)
			}
			if strings.Contains(out.String(), "not kept fresh") {
				t.Errorf("the agent: %s", out)
			}
			if err := exec.Command("runc", "--root", made.runcRoot, "kill", made.id, "TERM").Run(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
		})
	}
}

// With the DaemonSet's rights and mounts everything of a restore works: interfaces, addresses, sysctls, announcements.
func TestRestoreInTheContainer(t *testing.T) {
	directories(t)
	n := node.New(t)
	path := attach(t)
	const setting = "net.ipv4.conf.eth0.arp_announce"
	fresh.Run(t, path, "sysctl -qw "+setting+"=2")
	fresh.Run(t, "", filepath.Join(node.Bin, "relink")+" capture --refresh")
	n.LoseParent(t)

	pod, c := agent(t)
	c.Command = []string{"/relink", "restore"}
	out, status := newContainer(t, pod, c).run(t)
	if status != 0 || !strings.Contains(out, "1 restored") {
		t.Errorf("status %d\n%s", status, out)
	}
	if got := strings.TrimSpace(fresh.Run(t, path, "sysctl -n "+setting)); got != "2" {
		t.Errorf("%s is %s after the restore, want 2", setting, got)
	}
	// The sysctl is the pod's and not the node's, although /proc/sys is the node's.
	fresh.Run(t, "", filepath.Join(node.Bin, "relink")+" check")
}

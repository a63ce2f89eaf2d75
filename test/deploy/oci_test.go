package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/test/node"
)

// container is a container of the DaemonSet as the runtime makes it: with the image's files, and with the mounts and
// rights of the manifest.
type container struct {
	id, bundle, runcRoot string
	spec                 map[string]any
}

// image makes the root file system that the Containerfile describes. A program that needs a library fails the test: there
// is none in the image.
func image(t *testing.T, root string) {
	t.Helper()
	b, err := os.ReadFile("../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	var copied int
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			name, ok := strings.CutPrefix(source, "bin/")
			if !ok {
				t.Fatalf("the image has %s, which make build does not make", source)
			}
			program := filepath.Join(node.Bin, name)
			if f, err := elf.Open(program); err != nil || f.Section(".interp") != nil {
				t.Fatalf("%s is no static program: %v", name, err)
			}
			if err := os.Link(program, filepath.Join(root, words[len(words)-1], name)); err != nil {
				content, err := os.ReadFile(program) // Another file system.
				if err == nil {
					err = os.WriteFile(filepath.Join(root, words[len(words)-1], name), content, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			copied++
		}
	}
	if copied == 0 {
		t.Fatal("the image is empty")
	}
}

// newContainer prepares a container of the pod.
func newContainer(t *testing.T, pod corev1.PodSpec, c corev1.Container) *container {
	t.Helper()
	dir := t.TempDir()
	made := &container{id: fmt.Sprintf("relink-%d-%d", os.Getpid(), time.Now().UnixNano()), bundle: dir, runcRoot: filepath.Join(dir, "runc")}
	root := filepath.Join(dir, "root")
	for _, d := range []string{root, made.runcRoot} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image(t, root)
	env := []string{"PATH=/"}
	for _, v := range c.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	rights := []string{}
	for _, name := range c.SecurityContext.Capabilities.Add {
		rights = append(rights, "CAP_"+string(name))
	}
	made.spec = map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"args": c.Command, "env": env, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0},
			"capabilities":    map[string]any{"bounding": rights, "effective": rights, "permitted": rights},
			"noNewPrivileges": !*c.SecurityContext.AllowPrivilegeEscalation,
		},
		"root":   map[string]any{"path": root, "readonly": *c.SecurityContext.ReadOnlyRootFilesystem},
		"mounts": mounts(t, pod, c),
		"linux": map[string]any{
			// hostNetwork: the container has the network namespace of the test, which is the node's.
			"namespaces":        []map[string]any{{"type": "pid"}, {"type": "ipc"}, {"type": "mount"}},
			"rootfsPropagation": "rslave",
			"maskedPaths":       []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"},
			"readonlyPaths":     []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	return made
}

// mounts are the mounts of each container, and those of the manifest.
func mounts(t *testing.T, pod corev1.PodSpec, c corev1.Container) []map[string]any {
	t.Helper()
	all := []map[string]any{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	for _, m := range c.VolumeMounts {
		source := hostPath(t, pod, m.Name)
		if err := os.MkdirAll(source, 0o755); err != nil {
			t.Fatal(err)
		}
		options := []string{"rbind", "rprivate", "rw"}
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer {
			options[1] = "rslave"
		}
		if m.ReadOnly {
			options[2] = "ro"
		}
		all = append(all, map[string]any{"destination": m.MountPath, "type": "bind", "source": source, "options": options})
	}
	return all
}

func hostPath(t *testing.T, pod corev1.PodSpec, volume string) string {
	t.Helper()
	for _, v := range pod.Volumes {
		if v.Name == volume {
			return v.HostPath.Path
		}
	}
	t.Fatalf("there is no volume %s", volume)
	return ""
}

// start runs the container. What it writes goes to the buffer.
func (c *container) start(t *testing.T) (*exec.Cmd, *node.Log) {
	t.Helper()
	b, err := json.Marshal(c.spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.bundle, "config.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := &node.Log{}
	cmd := exec.Command("runc", "--root", c.runcRoot, "run", "--bundle", c.bundle, "--pid-file", filepath.Join(c.bundle, "pid"), c.id)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("runc", "--root", c.runcRoot, "delete", "--force", c.id).Run() })
	return cmd, out
}

// run runs the container to its end, and returns what it wrote and its exit status.
func (c *container) run(t *testing.T) (string, int) {
	t.Helper()
	cmd, out := c.start(t)
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// pid is the process of the container, as the node sees it.
func (c *container) pid(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.bundle, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(b))
}

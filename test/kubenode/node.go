package kubenode

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/sandbox/cri"
	"github.com/relink-cni/relink/test/native"
	"github.com/relink-cni/relink/test/vm"
)

// The node's files. All of them are the guest's: none reaches the host.
const (
	// Name is the node's name. The kubelet adds it to the names of static pods.
	Name = "node"
	// Socket is containerd's.
	Socket    = "/run/containerd/containerd.sock"
	confDir   = "/etc/cni/net.d"
	manifests = "/etc/kubernetes/manifests"
	logs      = "/var/log/kubenode"
)

// startLimit is how long a program of the node may take to begin its work. The processor is emulated, and the host is busy.
const startLimit = 2 * time.Minute

//go:embed containerd.toml
var containerdConfig string

//go:embed kubelet.yaml
var kubeletConfig string

// Node is a running node. Its methods are for one goroutine at a time.
type Node struct {
	// Runtime asks containerd as relink-agent does.
	Runtime *cri.Client

	bin                 string
	containerd, kubelet *program
	wire                *grpc.ClientConn
	api                 runtimeapi.RuntimeServiceClient
}

// Start starts containerd and the kubelet in the test machine, or on a host of package native. cniBin is the directory of the CNI plugins, loopback among them.
// network is the path of the network configuration for the pods to come. The caller stops the node.
func Start(ctx context.Context, cniBin, network string) (_ *Node, retErr error) {
	if !vm.InGuest() && !native.Inside() {
		return nil, errors.New("a node needs the test machine or a host of its own: it would overwrite the CNI configuration of this host")
	}
	dir := os.Getenv(Env)
	if dir == "" {
		return nil, fmt.Errorf("%s is empty: call kubenode.Prepare on the host, and name its directory there", Env)
	}
	n := &Node{bin: dir}
	defer func() {
		if retErr != nil {
			n.kill()
		}
	}()
	if err := writeFiles(cniBin); err != nil {
		return nil, err
	}
	if err := place(network); err != nil {
		return nil, err
	}
	var err error
	if n.containerd, err = n.start("containerd"); err != nil {
		return nil, err
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	if n.kubelet, err = n.start("kubelet", "--config=/etc/kubelet.yaml", "--hostname-override="+Name, "-v=1"); err != nil {
		return nil, err
	}
	_, err = n.run("ctr", "-n", "k8s.io", "images", "import", "--snapshotter", "native", filepath.Join(dir, "image.tar"))
	return n, err
}

func writeFiles(cniBin string) error {
	for _, dir := range []string{confDir, manifests} { // The host may have some of its own.
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{confDir, manifests, logs, "/etc/containerd", "/var/lib/kubelet"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	config := strings.NewReplacer("@CNI_BIN@", cniBin, "@IMAGE@", imageName, "@SOCKET@", Socket).Replace(containerdConfig)
	if err := os.WriteFile("/etc/containerd/config.toml", []byte(config), 0o600); err != nil {
		return err
	}
	config = strings.NewReplacer("@MANIFESTS@", manifests, "@SOCKET@", Socket).Replace(kubeletConfig)
	return os.WriteFile("/etc/kubelet.yaml", []byte(config), 0o600)
}

// place makes the network configuration the only one.
func place(network string) error {
	text, err := os.ReadFile(network)
	if err != nil {
		return err
	}
	// containerd 1.6 reads the directory anew when a file in it is written, renamed or removed, and not when one is created
	// (pkg/cri/server/cni_conf_syncer.go). A file that comes from another directory by a rename is only created.
	partial := filepath.Join(confDir, "partial")
	if err := os.WriteFile(partial, text, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(confDir, "10-test.conflist"))
}

// command returns a command that finds containerd's programs, and ends with this process.
func (n *Node) command(name string, args ...string) *exec.Cmd {
	at := runtimeDir(n.bin)
	path := filepath.Join(at, "usr/bin", name)
	if name == "kubelet" {
		path = filepath.Join(n.bin, name)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(at, "usr/bin")+":"+filepath.Join(at, "usr/sbin")+":"+os.Getenv("PATH"))
	return cmd
}

// program is a program of the node that runs, or has ended.
type program struct {
	name    string
	process *os.Process
	// ended is closed when the program has ended.
	ended chan struct{}
}

// start starts a program that writes to a log of its own.
func (n *Node) start(name string, args ...string) (*program, error) {
	log, err := os.Create(filepath.Join(logs, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The program has its own descriptor.
	cmd := n.command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{name: name, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // Its log tells more than its status.
		close(p.ended)
	}()
	return p, nil
}

// runs returns an error if the program has ended.
func (p *program) runs() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended by itself", p.name)
	default:
		return nil
	}
}

// end ends the program, if it runs.
func (p *program) end() {
	if p == nil {
		return
	}
	_ = p.process.Signal(syscall.SIGTERM) // It may have ended by itself.
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.process.Kill() // It ignores SIGTERM.
		<-p.ended
	}
}

func (n *Node) run(name string, args ...string) (string, error) {
	out, err := n.command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// connect waits until containerd answers.
func (n *Node) connect(ctx context.Context) (err error) {
	if n.Runtime, err = cri.New(Socket); err != nil {
		return err
	}
	if n.wire, err = grpc.NewClient("unix://"+Socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	n.api = runtimeapi.NewRuntimeServiceClient(n.wire)
	return n.eventually(ctx, startLimit, func() error {
		_, err := n.Runtime.Sandboxes(ctx)
		return err
	})
}

// Network sets the network configuration for later pods, and waits until containerd has read it. It must have the same
// name as the one before: containerd deletes each pod by the present configuration.
func (n *Node) Network(ctx context.Context, network string) error {
	text, err := os.ReadFile(network)
	if err != nil {
		return err
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	if err := place(network); err != nil {
		return err
	}
	return n.eventually(ctx, startLimit, func() error {
		status, err := n.api.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		if have := status.GetInfo()["cniconfig"]; err == nil && !strings.Contains(have, string(quoted)) {
			err = fmt.Errorf("containerd has not read %s, but has %s (%s)", network, have, status.Info["lastCNILoadStatus"])
		}
		return err
	})
}

// Stop deletes all pods, ends the kubelet and containerd, and leaves no mount and no process of theirs.
func (n *Node) Stop(ctx context.Context) error {
	n.kubelet.end()
	var failures []error
	list, err := n.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	failures = append(failures, err)
	for _, s := range list.GetItems() {
		_, err := n.api.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
		if err == nil {
			_, err = n.api.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		}
		failures = append(failures, err)
	}
	n.kill()
	failures = append(failures, unmountBelow("/var/lib/", "/run/containerd/"))
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet", "/run/containerd", manifests, confDir} {
		failures = append(failures, os.RemoveAll(dir))
	}
	return errors.Join(failures...)
}

// Signal sends a signal to the program of this name, containerd or kubelet.
func (n *Node) Signal(name string, signal os.Signal) error {
	for _, p := range []*program{n.containerd, n.kubelet} {
		if p.name == name {
			return p.process.Signal(signal)
		}
	}
	return fmt.Errorf("the node has no program %q", name)
}

// unmountBelow unmounts what the kubelet and containerd have left mounted below the directories, the newest mount first.
func unmountBelow(dirs ...string) error {
	const path = 4 // Of the fields of proc_pid_mountinfo(5).
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(mounts)), "\n")
	for _, line := range slices.Backward(lines) {
		at := strings.Fields(line)[path]
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(at, dir) }) {
			if err := syscall.Unmount(at, 0); err != nil {
				return fmt.Errorf("unmounting %s: %w", at, err)
			}
		}
	}
	return nil
}

// kill ends the node's programs.
func (n *Node) kill() {
	n.kubelet.end()
	n.containerd.end()
	if n.wire != nil {
		_ = n.wire.Close() // Nothing was written that could be lost.
	}
}

// Logs returns the ends of what the node's programs have written.
func Logs() string {
	const most = 6000
	var all strings.Builder
	for _, name := range []string{"kubelet", "containerd"} {
		f, err := os.Open(filepath.Join(logs, name+".log"))
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > most {
			_, _ = f.Seek(-most, io.SeekEnd) // Without it there is more to read.
		}
		text, _ := io.ReadAll(f) // What could be read is shown.
		_ = f.Close()
		fmt.Fprintf(&all, "the end of %s's log:\n%s\n", name, text)
	}
	return all.String()
}

// eventually calls try until it returns nil. After the limit, or when a program of the node has ended, it returns the last
// error of try, and the ends of the logs.
func (n *Node) eventually(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ended := n.runs(); ended != nil || ctx.Err() != nil {
			return fmt.Errorf("%w\n%s", errors.Join(err, ended, ctx.Err()), Logs())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// runs returns an error if a program of the node has ended by itself.
func (n *Node) runs() error {
	var failures []error
	for _, p := range []*program{n.containerd, n.kubelet} {
		if p != nil {
			failures = append(failures, p.runs())
		}
	}
	return errors.Join(failures...)
}

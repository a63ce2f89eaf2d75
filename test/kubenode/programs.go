package kubenode

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/relink-cni/relink/test/cache"
)

// Env is the environment variable that gives the guest the directory of Prepare.
const Env = "RELINK_KUBENODE"

// kubernetesModule names Kubernetes's version. kubernetes.sum has the checksums of all that its programs are built from.
//
//go:embed kubernetes.mod
var kubernetesModule []byte

//go:embed kubernetes.sum
var kubernetesSums []byte

var kubernetesVersion = regexp.MustCompile(`(?m)^require k8s\.io/kubernetes (v\S+)$`)

// Prepare fetches Debian's containerd and runc and builds the kubelet, unless the cache has them. It returns the directory to
// name in Env. Any number of processes may prepare the same cache at once.
func Prepare(ctx context.Context) (dir string, err error) {
	if dir, err = cache.Dir("kubenode"); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	kubelet, err := Program(ctx, "kubelet")
	if err != nil {
		return "", err
	}
	if err := cache.Once(runtimeDir(dir), func(partial string) error { return fetchRuntime(ctx, partial) }); err != nil {
		return "", fmt.Errorf("fetching containerd and runc: %w", err)
	}
	image, err := buildImage()
	if err != nil {
		return "", fmt.Errorf("building the pods' image: %w", err)
	}
	err = cache.Once(image.path(dir), func(partial string) error { return os.WriteFile(partial, image.archive, 0o644) })
	if err != nil {
		return "", err
	}
	return dir, link(dir, map[string]string{"kubelet": kubelet, "image.tar": image.path(dir)})
}

// link gives the present versions names that the guest knows.
func link(dir string, links map[string]string) error {
	for name, to := range links {
		path := filepath.Join(dir, name)
		if old, err := os.Readlink(path); err == nil && old == filepath.Base(to) {
			continue
		}
		partial := fmt.Sprintf("%s.%d", path, os.Getpid())
		if err := os.Symlink(filepath.Base(to), partial); err != nil {
			return fmt.Errorf("filling the cache: %w", err)
		}
		if err := os.Rename(partial, path); err != nil {
			return fmt.Errorf("filling the cache: %w", err)
		}
	}
	return nil
}

// Program builds a program of Kubernetes, such as kube-apiserver, unless the cache has it. It returns the program's path. Any
// number of processes may call it at once.
func Program(ctx context.Context, name string) (path string, err error) {
	dir, err := cache.Dir("kubenode")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	version := kubernetesVersion.FindSubmatch(kubernetesModule)
	if version == nil {
		return "", errors.New("test/kubenode/kubernetes.mod does not require k8s.io/kubernetes")
	}
	path = filepath.Join(dir, name+"-"+string(version[1]))
	if err := cache.Once(path, func(partial string) error { return build(ctx, name, string(version[1]), partial) }); err != nil {
		return "", fmt.Errorf("building the %s: %w", name, err)
	}
	return path, nil
}

// build builds a program of Kubernetes as an ordinary program of a module that requires Kubernetes: every k8s.io module that
// Kubernetes takes from its own tree is replaced by its release.
func build(ctx context.Context, name, version, to string) error {
	module, err := os.MkdirTemp("", "relink-kubernetes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(module) }()
	for name, text := range map[string][]byte{"go.mod": kubernetesModule, "go.sum": kubernetesSums} {
		if err := os.WriteFile(filepath.Join(module, name), text, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+version, "-o", to, "k8s.io/kubernetes/cmd/"+name)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func runtimeDir(dir string) string { return filepath.Join(dir, "containerd") }

// fetchRuntime unpacks Debian's packages into dir. They are not installed: apt would start a daemon on this machine, and would
// remove Docker's own containerd.
func fetchRuntime(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"containerd", "runc"} {
		file, err := cache.Download(ctx, name, dir)
		if err != nil {
			return err
		}
		if _, err := cache.Tool(ctx, dir, "dpkg", "-x", file, dir); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

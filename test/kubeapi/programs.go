package kubeapi

import (
	"context"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/test/cache"
	"github.com/relink-cni/relink/test/kubenode"
)

// Programs are the paths of what makes an API. Etcdctl saves and restores backups of etcd.
type Programs struct{ Etcd, Etcdctl, APIServer, ControllerManager string }

// Prepare puts the distribution's etcd into the cache and builds the other programs, unless the cache has them.
func Prepare(ctx context.Context) (p Programs, err error) {
	if p.APIServer, err = kubenode.Program(ctx, "kube-apiserver"); err != nil {
		return p, err
	}
	if p.ControllerManager, err = kubenode.Program(ctx, "kube-controller-manager"); err != nil {
		return p, err
	}
	dir := filepath.Dir(p.APIServer)
	if p.Etcd, err = unpacked(ctx, filepath.Join(dir, "etcd"), "etcd-server", "etcd"); err != nil {
		return p, err
	}
	p.Etcdctl, err = unpacked(ctx, filepath.Join(dir, "etcdctl"), "etcd-client", "etcdctl")
	return p, err
}

// unpacked returns the path of a program of the distribution's package in dir. The package is unpacked and not installed: an
// installation would start a daemon.
func unpacked(ctx context.Context, dir, name, program string) (string, error) {
	err := cache.Once(dir, func(partial string) error {
		if err := os.MkdirAll(partial, 0o755); err != nil {
			return err
		}
		file, err := cache.Download(ctx, name, partial)
		if err != nil {
			return err
		}
		if _, err := cache.Tool(ctx, partial, "dpkg", "-x", file, partial); err != nil {
			return err
		}
		return os.Remove(file)
	})
	return filepath.Join(dir, "usr", "bin", program), err
}

package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/test/cache"
	"github.com/relink-cni/relink/test/kubenode"
)

// Programs are the paths of what makes an API.
type Programs struct{ Etcd, APIServer string }

// Prepare puts the distribution's etcd into the cache and builds the kube-apiserver, unless the cache has them. The package is
// unpacked and not installed: an installation would start a daemon.
func Prepare(ctx context.Context) (p Programs, err error) {
	if p.APIServer, err = kubenode.Program(ctx, "kube-apiserver"); err != nil {
		return p, err
	}
	dir := filepath.Join(filepath.Dir(p.APIServer), "etcd")
	err = cache.Once(dir, func(partial string) error {
		if err := os.MkdirAll(partial, 0o755); err != nil {
			return err
		}
		file, err := cache.Download(ctx, "etcd-server", partial)
		if err != nil {
			return err
		}
		if _, err := cache.Tool(ctx, partial, "dpkg", "-x", file, partial); err != nil {
			return err
		}
		return os.Remove(file)
	})
	p.Etcd = filepath.Join(dir, "usr", "bin", "etcd")
	return p, err
}

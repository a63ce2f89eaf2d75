package monitoring

import (
	"context"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/test/cache"
)

// Prepare puts prometheus and promtool of the distribution into the cache, unless it has them. It returns their directory. The
// package is unpacked and not installed: an installation would start a daemon.
func Prepare(ctx context.Context) (dir string, err error) {
	parent, err := cache.Dir("monitoring")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	at := filepath.Join(parent, "prometheus")
	err = cache.Once(at, func(partial string) error {
		if err := os.MkdirAll(partial, 0o755); err != nil {
			return err
		}
		file, err := cache.Download(ctx, "prometheus", partial)
		if err != nil {
			return err
		}
		if _, err := cache.Tool(ctx, partial, "dpkg", "-x", file, partial); err != nil {
			return err
		}
		return os.Remove(file)
	})
	return filepath.Join(at, "usr", "bin"), err
}

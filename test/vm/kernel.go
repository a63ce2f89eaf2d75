package vm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/relink-cni/relink/test/cache"
)

// defaultKernel is a package that depends on the distribution's current kernel.
const defaultKernel = "linux-image-amd64"

// source says where a kernel comes from.
type source struct {
	name string // a package's name, or the path of a .deb file
	key  string // names it in the cache
}

// kernelSource reads the setting RELINK_VM_KERNEL: a package, or a file with the suffix .deb.
func kernelSource() (source, error) {
	name := os.Getenv("RELINK_VM_KERNEL")
	if name == "" {
		name = defaultKernel
	}
	if !strings.HasSuffix(name, ".deb") {
		return source{name: name, key: filepath.Base(name)}, nil
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return source{}, fmt.Errorf("finding the kernel %s: %w", name, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return source{}, fmt.Errorf("finding the kernel that RELINK_VM_KERNEL names: %w", err)
	}
	sum := sha256.Sum256(fmt.Append(nil, path, info.Size(), info.ModTime().UnixNano()))
	return source{name: path, key: fmt.Sprintf("%s-%x", filepath.Base(path), sum[:4])}, nil
}

// uselessModules are directories of modules for hardware that the machine never has: two thirds of the package.
var uselessModules = []string{
	"sound", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/iio", "drivers/infiniband", "drivers/hwmon",
	"drivers/input", "drivers/hid", "drivers/mtd", "drivers/scsi", "drivers/usb", "drivers/net/wireless",
	"drivers/bluetooth", "drivers/isdn", "drivers/video", "drivers/mfd", "drivers/power", "drivers/thunderbolt",
	"net/bluetooth", "net/mac80211", "net/wireless",
}

// fetchKernel unpacks a kernel package into dir: the kernel in boot, its modules in lib/modules.
func fetchKernel(ctx context.Context, from source, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the kernel's directory: %w", err)
	}
	file := from.name
	if !strings.HasSuffix(file, ".deb") {
		var err error
		if file, err = download(ctx, from.name, dir); err != nil {
			return err
		}
		defer func() { _ = os.Remove(file) }() // it only wastes space
	}
	if _, err := cache.Tool(ctx, dir, "dpkg", "-x", file, dir); err != nil {
		return fmt.Errorf("unpacking %s: %w", file, err)
	}
	if err := arrangeModules(ctx, dir); err != nil {
		return err
	}
	return unpackKernel(dir)
}

// arrangeModules puts the modules where kernelFiles looks for them, drops what is of no use and indexes the rest.
func arrangeModules(ctx context.Context, dir string) error {
	if newer := filepath.Join(dir, "usr/lib/modules"); cache.Exists(newer) { // since Debian 13
		if err := os.MkdirAll(filepath.Join(dir, "lib"), 0o755); err != nil {
			return fmt.Errorf("arranging the modules: %w", err)
		}
		if err := os.Rename(newer, filepath.Join(dir, "lib/modules")); err != nil {
			return fmt.Errorf("arranging the modules: %w", err)
		}
	}
	img, err := kernelFiles(dir)
	if err != nil {
		return err
	}
	useless := []string{filepath.Join(dir, "usr")}
	for _, name := range uselessModules {
		useless = append(useless, filepath.Join(img.modules, "kernel", name))
	}
	for _, path := range useless {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("dropping unneeded modules: %w", err)
		}
	}
	if _, err := cache.Tool(ctx, dir, "depmod", "-b", dir, filepath.Base(img.modules)); err != nil {
		return fmt.Errorf("indexing the modules: %w", err)
	}
	return nil
}

// kernelFiles finds the kernel and its modules below the directory of an unpacked package.
func kernelFiles(dir string) (image, error) {
	kernels, _ := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*")) // the pattern is well-formed
	modules, _ := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if len(kernels) != 1 || len(modules) != 1 {
		return image{}, fmt.Errorf("%s has %d kernels and %d module directories instead of one each", dir,
			len(kernels), len(modules))
	}
	img := image{kernel: kernels[0], modules: modules[0]}
	if unpacked := unpackedKernel(img.kernel); cache.Exists(unpacked) {
		img.kernel = unpacked
	}
	return img, nil
}

// download fetches the kernel that a package is, or depends on, and returns the file's path below dir.
func download(ctx context.Context, name, dir string) (string, error) {
	depends, err := cache.Tool(ctx, dir, "apt-cache", "depends", "--important", name)
	if err != nil {
		return "", fmt.Errorf("looking for the package %s, `make setup` reads the package lists: %w", name, err)
	}
	return cache.Download(ctx, dependedKernel(name, depends), dir)
}

var kernelDependency = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\d\S*)`)

// dependedKernel returns the kernel package that `apt-cache depends` lists for a package, or the package itself.
func dependedKernel(name, depends string) string {
	if match := kernelDependency.FindStringSubmatch(depends); match != nil {
		return match[1]
	}
	return name
}

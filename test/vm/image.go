package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed guest/initramfs.sh
var firstStage []byte

//go:embed guest/init.sh
var secondStage []byte

// image is what qemu boots, as paths in the cache.
type image struct {
	kernel    string // the kernel image
	modules   string // the directory that is /lib/modules/<release> in the guest
	initramfs string
}

// Prepare downloads the guest's kernel and builds its initramfs unless the cache has them. Run does it by itself; calling
// it earlier moves the wait. Any number of processes may prepare the same cache at once.
func Prepare(ctx context.Context) error {
	_, err := prepareImage(ctx)
	return err
}

func prepareImage(ctx context.Context) (image, error) {
	cache, err := cacheDir()
	if err != nil {
		return image{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return image{}, fmt.Errorf("making the cache: %w", err)
	}
	source, err := kernelSource()
	if err != nil {
		return image{}, err
	}
	kernel := filepath.Join(cache, "kernel-"+source.key)
	err = once(kernel, func(partial string) error { return fetchKernel(ctx, source, partial) })
	if err != nil {
		return image{}, err
	}
	img, err := kernelFiles(kernel)
	if err != nil {
		return image{}, err
	}
	busybox, err := lookTool("busybox")
	if err != nil {
		return image{}, err
	}
	img.initramfs, err = prepareInitramfs(cache, img.modules, busybox)
	return img, err
}

// cacheDir returns the machine's part of relink's cache, which may not exist yet.
func cacheDir() (string, error) {
	dir := os.Getenv("RELINK_CACHE_DIR")
	if dir == "" {
		user, err := os.UserCacheDir() // $XDG_CACHE_HOME, else ~/.cache
		if err != nil {
			return "", fmt.Errorf("no place for the cache, set RELINK_CACHE_DIR: %w", err)
		}
		dir = filepath.Join(user, "relink")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache %s: %w", dir, err)
	}
	// The guest reaches the cache through the host's root, where links do not lead out of it.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return filepath.Join(dir, "vm"), nil
}

// once makes path by calling build with a temporary path beside it, unless path is there. One process builds, the others
// wait for it; path appears complete or not at all.
func once(path string, build func(partial string) error) error {
	if exists(path) {
		return nil
	}
	unlock, err := lockFile(filepath.Join(filepath.Dir(path), "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if exists(path) {
		return nil
	}
	partial := path + ".partial" // left behind by a killed process, if it is there: the lock is ours
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("clearing the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(partial) }() // the next to build clears it, too
	if err := build(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lockFile takes an exclusive lock, waiting for it, and returns what gives it back.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// earlyModules are loaded by the initramfs, with what they depend on, in this order: eth0 and eth1 are e1000e NICs
// because that driver comes before virtio_net.
var earlyModules = []string{
	"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "e1000e", "virtio_net",
}

// prepareInitramfs returns the path of an initramfs that was built from exactly these parts.
func prepareInitramfs(cache, modules, busybox string) (string, error) {
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return "", fmt.Errorf("reading busybox: %w", err)
	}
	if err := checkStatic(shell); err != nil {
		return "", fmt.Errorf("%s, `make setup` installs a static one: %w", busybox, err)
	}
	sum := sha256.New()
	names := fmt.Appendln(nil, modules, earlyModules, len(firstStage), len(secondStage))
	for _, part := range [][]byte{names, firstStage, secondStage, shell} {
		sum.Write(part)
	}
	path := filepath.Join(cache, fmt.Sprintf("initramfs-%x.cpio", sum.Sum(nil)[:8]))
	err = once(path, func(partial string) error {
		archive, err := buildInitramfs(modules, shell)
		if err != nil {
			return fmt.Errorf("building the initramfs: %w", err)
		}
		return os.WriteFile(partial, archive, 0o644)
	})
	return path, err
}

// checkStatic returns an error unless a program runs without libraries, which the initramfs has none of.
func checkStatic(program []byte) error {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("it is linked dynamically")
		}
	}
	return nil
}

// buildInitramfs returns an archive, uncompressed: the emulated processor would have to unpack it.
func buildInitramfs(modules string, shell []byte) ([]byte, error) {
	var archive cpioArchive
	for _, name := range []string{"bin", "dev", "proc", "sys", "lower", "rw", "root", "modules"} {
		archive.directory(name)
	}
	archive.file("bin/busybox", shell)
	archive.file("init", firstStage)
	archive.file("init.second", secondStage)
	paths, err := loadOrder(modules, earlyModules)
	if err != nil {
		return nil, err
	}
	var order strings.Builder
	for _, path := range paths {
		data, err := readModule(filepath.Join(modules, path))
		if err != nil {
			return nil, err
		}
		name := moduleName(path)
		archive.file("modules/"+name, data)
		order.WriteString(name + "\n")
	}
	archive.file("modules/order", []byte(order.String()))
	return archive.finish(), nil
}

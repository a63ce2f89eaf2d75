package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/test/cache"
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
	dir, err := cache.Dir("vm")
	if err != nil {
		return image{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return image{}, fmt.Errorf("making the cache: %w", err)
	}
	source, err := kernelSource()
	if err != nil {
		return image{}, err
	}
	kernel := filepath.Join(dir, "kernel-"+source.key)
	err = cache.Once(kernel, func(partial string) error { return fetchKernel(ctx, source, partial) })
	if err != nil {
		return image{}, err
	}
	img, err := kernelFiles(kernel)
	if err != nil {
		return image{}, err
	}
	busybox, err := cache.LookTool("busybox")
	if err != nil {
		return image{}, err
	}
	img.initramfs, err = prepareInitramfs(dir, img.modules, busybox)
	return img, err
}

// earlyModules are loaded by the initramfs, with what they depend on, in this order: eth0 and eth1 are e1000e NICs
// because that driver comes before virtio_net.
var earlyModules = []string{
	"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "e1000e", "virtio_net",
}

// prepareInitramfs returns the path of an initramfs that was built from exactly these parts.
func prepareInitramfs(dir, modules, busybox string) (string, error) {
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
	path := filepath.Join(dir, fmt.Sprintf("initramfs-%x.cpio", sum.Sum(nil)[:8]))
	err = cache.Once(path, func(partial string) error {
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

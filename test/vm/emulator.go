package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/test/cache"
)

// emulatorName is that of the program.
const emulatorName = "qemu-system-x86_64"

// emulator is a qemu.
type emulator struct {
	path string
	// arguments come before all others. env is more environment.
	arguments, env []string
}

// findEmulator returns the system's qemu. With sriov it returns one that knows igb, and fetches that if the system's is older.
func findEmulator(ctx context.Context, sriov bool) (emulator, error) {
	path, err := cache.LookTool(emulatorName)
	if err != nil || !sriov || knowsIGB(ctx, path) {
		return emulator{path: path}, err
	}
	dir, err := prepareEmulator(ctx)
	if err != nil {
		return emulator{}, fmt.Errorf("fetching a qemu that knows igb: %w", err)
	}
	return emulator{
		path: filepath.Join(dir, "usr/bin", emulatorName),
		// Its own files, not those of the system's qemu: firmware in two directories, and modules, which must be of the same build.
		arguments: []string{"-L", filepath.Join(dir, "usr/share/qemu"), "-L", filepath.Join(dir, "usr/share/seabios")},
		env:       []string{"QEMU_MODULE_DIR=" + filepath.Join(dir, "usr/lib/x86_64-linux-gnu/qemu")},
	}, nil
}

// knowsIGB asks qemu for the device's properties: a list of all devices loads modules that may not be installed.
func knowsIGB(ctx context.Context, path string) bool {
	out, err := cache.Tool(ctx, "/", path, "-device", "igb,help")
	return err == nil && strings.Contains(out, "netdev")
}

// PrepareSRIOV fetches the qemu of Config.SRIOV, unless the system or the cache has one.
func PrepareSRIOV(ctx context.Context) error {
	_, err := findEmulator(ctx, true)
	return err
}

// emulatorPackages hold qemu and all that it loads. Its libraries are those of Debian 12's own qemu.
var emulatorPackages = []string{"qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"}

// prepareEmulator returns the directory with the unpacked qemu of the distribution's backports. It is not installed: the other tests
// use the distribution's own.
func prepareEmulator(ctx context.Context) (string, error) {
	parent, err := cache.Dir("qemu")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	dir := filepath.Join(parent, "backports")
	return dir, cache.Once(dir, func(partial string) error {
		if err := os.MkdirAll(partial, 0o755); err != nil {
			return err
		}
		backports, err := cache.OpenBackports(ctx, filepath.Join(partial, "apt"))
		if err != nil {
			return err
		}
		defer backports.Close()
		for _, name := range emulatorPackages {
			if err := backports.Unpack(ctx, name, partial); err != nil {
				return err
			}
		}
		return nil
	})
}

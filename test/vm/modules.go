package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loadOrder returns the paths, below modules, of the named modules and of all that they need, each after what it needs.
// Names that the index lacks are built into the kernel.
func loadOrder(modules string, names []string) ([]string, error) {
	index, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("reading the modules' index: %w", err)
	}
	return resolveModules(string(index), names), nil
}

// resolveModules is loadOrder for an index in modules.dep's format: "path: what it needs, the last needed first".
func resolveModules(index string, names []string) []string {
	chains := map[string][]string{}
	for line := range strings.Lines(index) {
		path, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		chain := strings.Fields(needs)
		slices.Reverse(chain)
		chains[moduleName(path)] = append(chain, path)
	}
	var order []string
	for _, name := range names {
		for _, path := range chains[name] {
			if !slices.Contains(order, path) {
				order = append(order, path)
			}
		}
	}
	return order
}

// moduleName returns the name of the module at path: kernel/fs/9p/9p.ko.xz is 9p.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return name
}

// packings are what modules are packed with, by suffix (.xz since Debian 13).
var packings = map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}

// readModule returns a module, unpacked.
func readModule(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a module: %w", err)
	}
	program, packed := packings[filepath.Ext(path)]
	if !packed {
		return data, nil
	}
	return unpack(program, data)
}

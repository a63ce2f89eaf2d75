package binaries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module    = "github.com/relink-cni/relink"
	reference = "github.com/containernetworking/plugins/plugins"
)

// programs are the packages by the name of the program.
var programs = map[string]string{
	"relink":            module + "/cmd/relink",
	"relink-macvlan":    module + "/plugins/main/macvlan",
	"relink-vlan":       module + "/plugins/main/vlan",
	"relink-ipam":       module + "/plugins/ipam/relink",
	"relink-checkpoint": module + "/plugins/meta/checkpoint",

	"cnitool":     "github.com/containernetworking/cni/cnitool",
	"macvlan":     reference + "/main/macvlan",
	"ipvlan":      reference + "/main/ipvlan",
	"vlan":        reference + "/main/vlan",
	"host-device": reference + "/main/host-device",
	"tuning":      reference + "/meta/tuning",
	"sbr":         reference + "/meta/sbr",
	"bandwidth":   reference + "/meta/bandwidth",
	"host-local":  reference + "/ipam/host-local",
	"static":      reference + "/ipam/static",
}

// Build builds all programs into dir, static and stripped as they are released, but
// for the build tags. The caller is in the module.
func Build(dir string, tags ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, pkg := range programs {
		if err := build(filepath.Join(dir, name), pkg, tags); err != nil {
			return err
		}
	}
	return nil
}

func build(path, pkg string, tags []string) error {
	return run("build", "-trimpath", "-ldflags=-s -w", "-tags="+strings.Join(tags, ","), "-o", path, pkg)
}

// BuildTests builds the tests of a package of this module, as one program, so that they
// can be run elsewhere.
func BuildTests(path, pkg string) error {
	return run("test", "-c", "-ldflags=-s -w", "-o", path, module+"/"+pkg)
}

func run(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

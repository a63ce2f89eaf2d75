package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/pkg/flock"
)

const (
	module    = "github.com/relink-cni/relink"
	reference = "github.com/containernetworking/plugins/plugins"
)

// renamed are the packages whose programs have another name than their directory.
var renamed = map[string]string{
	"relink-macvlan":     module + "/plugins/main/macvlan",
	"relink-vlan":        module + "/plugins/main/vlan",
	"relink-ipam":        module + "/plugins/ipam/relink",
	"relink-checkpoint":  module + "/plugins/meta/checkpoint",
	"relink-host-access": module + "/plugins/meta/hostaccess",
}

// named are the other packages: one go command builds them all.
var named = []string{
	module + "/cmd/relink",
	module + "/cmd/relink-agent",
	module + "/cmd/kubectl-relink",
	"github.com/containernetworking/cni/cnitool",
	module + "/test/meta",
	reference + "/main/bridge",
	reference + "/main/macvlan",
	reference + "/main/ipvlan",
	reference + "/main/vlan",
	reference + "/main/host-device",
	reference + "/main/loopback",
	reference + "/meta/tuning",
	reference + "/meta/sbr",
	reference + "/meta/bandwidth",
	reference + "/ipam/host-local",
	reference + "/ipam/static",
}

// builtEnv is set where somebody has built the programs of this state of the source already. Each of the many packages that
// need them would spend a second on seeing that. make test builds them without it, whatever the caller has set, and then sets it.
const builtEnv = "RELINK_PROGRAMS_BUILT"

// Build builds all programs into dir, static and stripped as they are released, but
// for the build tags. Packages whose tests run at once may
// build into one directory: one does, and the others find that done and change nothing.
func Build(dir string, tags ...string) error {
	if os.Getenv(builtEnv) != "" {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := flock.Lock(context.Background(), lock, flock.Exclusive); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	defer func() { _ = lock.Close() }() // Nothing was written to it.
	if err := build(dir+"/", tags, named...); err != nil {
		return err
	}
	for name, pkg := range renamed {
		if err := build(filepath.Join(dir, name), tags, pkg); err != nil {
			return err
		}
	}
	return nil
}

func build(to string, tags []string, packages ...string) error {
	return run(append([]string{"build", "-trimpath", "-ldflags=-s -w", "-tags=" + strings.Join(tags, ","), "-o", to}, packages...)...)
}

// BuildTests builds the tests of a package of this module, as one program, so that they
// can be run elsewhere.
func BuildTests(path, pkg string) error {
	return run("test", "-c", "-trimpath", "-ldflags=-s -w", "-o", path, module+"/"+pkg)
}

// Root returns the directory of the module that has relink's programs. The working directory is in it, if in a module of its own.
func Root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if text, _ := os.ReadFile(filepath.Join(dir, "go.mod")); strings.HasPrefix(string(text), "module "+module+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no directory above has the go.mod of %s", module)
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func run(args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root // Another module may have other versions.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

package netfix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// readDir reads the files of the directory. It skips names that begin with a dot: they belong to an
// editor or a copying program. Everything else that is no file of the tool gets an Err.
func readDir(dir string) ([]Candidate, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of i40e_net_fix: %w", err)
	}
	var found []Candidate
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		f := Candidate{Path: filepath.Join(dir, entry.Name())}
		if !entry.Type().IsRegular() {
			f.Err = errors.New("no regular file, and so no checkpoint of i40e_net_fix: move it away")
		} else {
			f.Err = f.read()
		}
		found = append(found, f)
	}
	return found, nil
}

// maxFileSize is far above what the tool writes.
const maxFileSize = 1 << 20

func (f *Candidate) read() error {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return err
	}
	if len(b) > maxFileSize {
		return fmt.Errorf("it is longer than %d bytes: no checkpoint of i40e_net_fix", maxFileSize)
	}
	parsed, err := Parse(b)
	if err != nil {
		return err
	}
	f.File, f.ModTime = parsed, info.ModTime()
	return parsed.checkName(filepath.Base(f.Path))
}

// inspector knows the host, for a look into sandboxes.
type inspector struct {
	host    *kernel.Namespace
	devices netstate.Devices
	booted  time.Time
}

func newInspector() (*inspector, error) {
	booted, err := sandbox.Booted()
	if err != nil {
		return nil, err
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	devices, err := host.Devices()
	if err != nil {
		host.Close()
		return nil, err
	}
	return &inspector{host: host, devices: devices, booted: booted}, nil
}

func (l *inspector) close() { l.host.Close() }

// errHost says that the namespace is the host's and not a sandbox's.
var errHost = errors.New("it is the host's own network namespace, not a sandbox's")

// inspect looks at what the file's netns leads to. Its errors can be kernel.ErrNoNamespace and errHost.
func (l *inspector) inspect(file File) (SandboxState, error) {
	// To open anything else can block for ever, or have effects.
	if info, err := os.Stat(file.Netns); err == nil && !info.Mode().IsRegular() {
		return SandboxState{}, fmt.Errorf("%s: %w: it is no file of the kernel's", file.Netns, kernel.ErrNoNamespace)
	}
	namespace, err := kernel.Open(file.Netns)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return SandboxState{}, fmt.Errorf("its sandbox is gone: %w", err)
	}
	if err != nil {
		return SandboxState{}, err
	}
	defer namespace.Close()
	state := SandboxState{Namespace: namespace.Identity(), BootedAt: l.booted}
	if l.isHost(state.Namespace) {
		return SandboxState{}, fmt.Errorf("netns %s: %w", file.Netns, errHost)
	}
	if state.Live, state.Unsupported, err = l.capture(namespace, file.IfName); err != nil {
		return SandboxState{}, fmt.Errorf("%s: %s: %w", file.Netns, file.IfName, err)
	}
	devices, err := namespace.Devices()
	if err != nil {
		return SandboxState{}, fmt.Errorf("%s: %w", file.Netns, err)
	}
	state.External = externalDevices(devices, file.IfName)
	if pid, ok := sandbox.ProcessOf(file.Netns); ok {
		if state.StartedAt, err = sandbox.Started(pid, l.booted); err != nil {
			return SandboxState{}, err
		}
	}
	return state, nil
}

func (l *inspector) isHost(n attachment.Namespace) bool {
	if l.host.Identity().Same(n) == nil {
		return true
	}
	file, ok := sandbox.Identify("/proc/1/ns/net")
	return ok && file == n.File()
}

// capture returns the interface, nil if it is gone. Devices of the host can come and go during a
// look, so it looks twice if something does not fit.
func (l *inspector) capture(namespace *kernel.Namespace, ifName string) (live *netstate.Interface, unsupported, err error) {
	captured, err := kernel.Capture(l.host, namespace, l.devices, ifName, kernel.CheckpointExtent)
	if err != nil && !errors.Is(err, kernel.ErrNoDevice) && !errors.Is(err, kernel.ErrUnsupported) {
		if l.devices, err = l.host.Devices(); err != nil {
			return nil, nil, err
		}
		captured, err = kernel.Capture(l.host, namespace, l.devices, ifName, kernel.CheckpointExtent)
	}
	if err == nil {
		if invalid := captured.Validate(); invalid != nil {
			return &captured, invalid, nil
		}
	}
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
		return nil, nil, nil
	case errors.Is(err, kernel.ErrUnsupported):
		return &captured, err, nil
	case err != nil:
		return nil, nil, err
	}
	return &captured, nil, nil
}

// externalKinds are the kinds of devices that a sandbox is given. Processes in a sandbox make bridges,
// tunnels and dummies for themselves. The kernel makes some tunnels.
var externalKinds = []string{
	netstate.KindNIC, netstate.KindVLAN, netstate.KindMacvlan, "macvtap", "ipvlan", "ipvtap", "veth",
}

// externalDevices returns the devices that lead out of the sandbox, except the one of that name. A device
// that is stacked on another of the sandbox, or is its peer, does not lead out.
func externalDevices(devices netstate.Devices, except string) []netstate.LiveDevice {
	var result []netstate.LiveDevice
	for _, d := range devices {
		if d.Name != "lo" && d.Name != except && d.ParentIndex == 0 && slices.Contains(externalKinds, d.Kind) {
			result = append(result, d)
		}
	}
	return result
}

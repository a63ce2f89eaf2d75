package validate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/owner"
)

// PluginDirs are the directories in which containerd and CRI-O look for plugins by default.
var PluginDirs = []string{"/opt/cni/bin", "/usr/libexec/cni", "/usr/lib/cni"}

// need is what a plugin needs of the node: the value of a key of its configuration that names something there, a kernel module, or the
// Kubernetes API for a key. store is the name of a store of leases.
type need struct{ key, value, store string }

// The keys of needs. The last two are no keys of a configuration.
const (
	typeKey        = "type"
	ipamKey        = "ipam.type"
	checkpointsKey = "checkpointDir"
	leasesKey      = "ipam.dataDir"
	fileKey        = "ipam.resolvConf"
	moduleNeed     = "kernel module"
	apiNeed        = "Kubernetes API"
)

// Node is what is known of this node. Nothing is reported for what is not known.
type Node struct {
	// Devices are the devices of the host, nil if they are not known. Route is the index of the default
	// route's device, 0 for none.
	Devices netstate.Devices
	Route   int
	// Problems says why the node does not have what a plugin needs.
	Problems map[need]string
	// OlderLeases are the stores with leases of the ranges of a store that has none.
	OlderLeases map[need][]string
	// Access is what concerns host access, nil if it is not known.
	Access *AccessNode
	// Unknown says what could not be found out, and why.
	Unknown []string
}

// addNeeds notes what the plugin needs beside what its own configuration names.
func (p *plugin) addNeeds() {
	needs := []need{{key: typeKey, value: p.kind}}
	if p.ipam != "" && (p.ipam != ipam.PluginName || netconf.InterfaceReaders[p.kind] == nil) {
		needs = append(needs, need{key: ipamKey, value: p.ipam}) // relink's interface plugins contain relink-ipam.
	}
	if p.kind == netconf.MacvlanName {
		needs = append(needs, need{key: moduleNeed, value: "macvlan"})
	}
	if p.kind == netconf.VLANName || p.request != nil && p.request.VLAN != nil {
		needs = append(needs, need{key: moduleNeed, value: "8021q"})
	}
	p.needs = append(needs, p.needs...)
}

// probeNode finds out what the networks need to know of this node. It leaves nothing behind.
func probeNode(chains []chain, pluginDirs []string) Node {
	node := Node{Problems: map[need]string{}, OlderLeases: map[need][]string{}}
	probed := map[need]bool{}
	var devices, access bool
	for _, c := range chains {
		for _, p := range c.plugins {
			access = access || p.access != nil
			devices = devices || p.request != nil || p.access != nil
			for _, n := range p.needs {
				if probed[n] {
					continue
				}
				probed[n] = true
				problem, err := n.probe(pluginDirs)
				node.addUnknown(err)
				node.Problems[n] = problem
				if n.key == leasesKey {
					node.OlderLeases[n] = n.olderLeases(p.sets)
				}
			}
		}
	}
	if devices {
		node.addUnknown(node.probeDevices())
	}
	if access {
		node.probeHostAccess()
	}
	return node
}

// addUnknown notes what could not be found out, unless err is nil.
func (n *Node) addUnknown(err error) {
	if err != nil {
		n.Unknown = append(n.Unknown, err.Error())
	}
}

// probe finds out why the node does not have it, "" if it has it. The error says what is not known, and why.
func (n need) probe(pluginDirs []string) (problem string, err error) {
	switch n.key {
	case typeKey, ipamKey:
		if slices.ContainsFunc(pluginDirs, func(dir string) bool { return isProgram(filepath.Join(dir, n.value)) }) {
			return "", nil
		}
		remedy := ": install it there, or name the directory by --cni-bin"
		if n.key == ipamKey {
			remedy = suggestion(n.value)
		}
		return fmt.Sprintf("is not in the runtime's directories (%s)%s", strings.Join(pluginDirs, ", "), remedy), nil
	case moduleNeed:
		exists, err := hasModule("/", n.value)
		if err != nil {
			return "", fmt.Errorf("whether the kernel has the module %s: %w", n.value, err)
		}
		if !exists {
			return "install the package with the kernel's modules", nil
		}
	case checkpointsKey:
		return rootProblem("no checkpoint can be written there", "whether a checkpoint can be written", checkWritable(n.value))
	case leasesKey:
		return rootProblem("no lease can be written there", "whether a lease can be written", n.checkLeases())
	case fileKey:
		if _, err := readRegular(n.value); err != nil && !isNull(n.value) {
			return rootProblem("must be a file that can be read", fmt.Sprintf("whether %s can be read", n.value), withoutPath(err))
		}
	case apiNeed:
		// The question names no pod: the agent refuses it without asking anybody.
		if _, err := (control.Client{}).Ask(context.Background(), owner.Question{}); err != nil && !errors.Is(err, owner.ErrInvalid) {
			return strings.TrimPrefix(err.Error(), owner.ErrUnavailable.Error()+": "), nil
		}
	}
	return "", nil
}

// rootProblem says what is wrong, "" if err is nil. Plugins run as root. What another user may not do says nothing about them: then it is not
// known.
func rootProblem(problem, subject string, err error) (string, error) {
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return "", fmt.Errorf("%s: %w: run as root", subject, err)
	}
	return problem + ": " + err.Error(), nil
}

// olderLeases tells whether the network may have had another name before: its store has no lease, and another store has leases of its ranges.
func (n need) olderLeases(sets []lease.RangeSet) []string {
	store, err := lease.Open(n.value, n.store)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeWait)
	defer cancel()
	leases, err := store.List(ctx)
	if len(leases) > 0 || err != nil && !errors.Is(err, lease.ErrNotLeased) {
		return nil
	}
	stores, _ := store.LeasedElsewhere(ctx, sets) // Who cannot read a store cannot write it, either.
	return stores
}

// storeWait bounds the look at a store. One that is in use is not new.
const storeWait = time.Second

// checkLeases says why no lease can be written. Without a file of the network, its directory counts: Store.Writable would make that
// directory.
func (n need) checkLeases() error {
	store, err := lease.Open(n.value, n.store)
	if err != nil {
		return err
	}
	if exists, err := store.Exists(); err == nil && exists {
		return store.Writable()
	}
	return checkWritable(n.value)
}

// isNull says that the path leads to /dev/null. An ADD reads it as an empty file.
func isNull(path string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(file, null)
}

func (n *Node) probeDevices() error {
	host, err := kernel.OpenHost()
	if err == nil {
		defer host.Close()
		n.Route, err = host.DefaultRouteDevice()
	}
	if err == nil {
		n.Devices, err = host.Devices()
	}
	if err != nil {
		return fmt.Errorf("the devices of this host: %w", err)
	}
	return nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// hasModule says whether the kernel has the module: loaded, built in, or in a file that modprobe finds. root is /, or
// another directory in a test. It fails if the modules of the kernel cannot be listed, as in a container without
// /lib/modules.
func hasModule(root, name string) (bool, error) {
	if _, err := os.Stat(filepath.Join(root, "sys/module", name)); err == nil {
		return true, nil
	}
	release, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	if err != nil {
		return false, err
	}
	entry := regexp.MustCompile(`(?m)^[^:\n]*/` + name + `\.ko`) // modules.dep has what a module needs behind a colon.
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		modules, err := os.ReadFile(filepath.Join(root, "lib/modules", strings.TrimSpace(string(release)), list))
		if err != nil || entry.Match(modules) {
			return err == nil, err
		}
	}
	return false, nil
}

// checkWritable says why no file can be written in a directory. The first ADD makes a missing directory, so then the
// directory above counts. It makes a file and removes it: nothing else tells for sure. Its error names the directory.
func checkWritable(dir string) error {
	for {
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		break
	}
	f, err := os.CreateTemp(dir, ".relink-validate-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", dir, path.Err)
	}
	return err
}

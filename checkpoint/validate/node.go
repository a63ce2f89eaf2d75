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

// Needs is what has to be known of a node for some networks.
type Needs struct {
	// Modules are kernel modules, Plugins are names of programs, Stores are directories of checkpoints, Files are files
	// that a plugin reads.
	Modules, Plugins, Stores, Files []string
	// Leases are stores of leases, with the ranges of their networks.
	Leases []leaseNeed
	// Devices says that the devices of the host have to be known, API that ADDs ask the Kubernetes API.
	Devices, API bool
	// Access says that a network asks for host access.
	Access bool
}

// leaseStore is where a network has its leases.
type leaseStore struct{ dir, name string }

// leaseNeed is a store and the ranges of a network that has its leases there.
type leaseNeed struct {
	leaseStore
	sets []lease.RangeSet
}

// Node is what is known of this node. What a map does not have is not known. Nothing is reported for it.
type Node struct {
	// Devices are the devices of the host, nil if they are not known. Route is the index of the default
	// route's device, 0 for none.
	Devices netstate.Devices
	Route   int
	// Modules says which kernel modules the node has, loaded or not.
	Modules map[string]bool
	// Plugins says which plugins are in PluginDirs.
	Plugins    map[string]bool
	PluginDirs []string
	// Stores says why no checkpoint can be written in a directory. "" says that it works.
	Stores map[string]string
	// Leases says why no lease can be written in a store. "" says that it works.
	Leases map[leaseStore]string
	// OlderLeases are the stores with leases of the ranges of a store that has none.
	OlderLeases map[leaseStore][]string
	// Files says why a file cannot be read. "" says that it can be read.
	Files map[string]string
	// Access is what concerns host access, nil if it is not known.
	Access *AccessNode
	// NoAPI says why relink-agent cannot ask the Kubernetes API. It is empty if it can, or if nobody has to know.
	NoAPI string
	// Unknown says what could not be found out, and why.
	Unknown []string
}

// chainNeeds returns what has to be known for the chains.
func chainNeeds(chains []chain) Needs {
	var n Needs
	for _, c := range chains {
		for _, p := range c.plugins {
			n.Plugins = append(n.Plugins, p.kind)
			if p.ipam != "" && (p.ipam != ipam.PluginName || netconf.InterfaceReaders[p.kind] == nil) {
				n.Plugins = append(n.Plugins, p.ipam) // relink's interface plugins contain relink-ipam.
			}
			if p.store != "" {
				n.Stores = append(n.Stores, p.store)
			}
			if p.leases != (leaseStore{}) {
				n.Leases = append(n.Leases, leaseNeed{p.leases, p.sets})
			}
			if p.resolvConf != "" {
				n.Files = append(n.Files, p.resolvConf)
			}
			n.Modules = append(n.Modules, p.modules()...)
			n.Devices = n.Devices || p.request != nil || p.access != nil
			n.Access = n.Access || p.access != nil
			n.API = n.API || p.needsAPI != ""
		}
	}
	for _, list := range []*[]string{&n.Modules, &n.Plugins, &n.Stores, &n.Files} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return n
}

// modules are the kernel modules that the plugin's devices need.
func (p plugin) modules() []string {
	var modules []string
	if p.kind == netconf.MacvlanName {
		modules = append(modules, "macvlan")
	}
	if p.kind == netconf.VLANName || p.request != nil && p.request.VLAN != nil {
		modules = append(modules, "8021q")
	}
	return modules
}

// ProbeNode finds out what the networks need to know of this node. It leaves nothing behind.
func ProbeNode(needs Needs, pluginDirs []string) Node {
	node := Node{Modules: map[string]bool{}, Plugins: map[string]bool{}, PluginDirs: pluginDirs, Stores: map[string]string{}, Leases: map[leaseStore]string{}, OlderLeases: map[leaseStore][]string{}, Files: map[string]string{}}
	if needs.Devices {
		if err := node.probeDevices(); err != nil {
			node.Unknown = append(node.Unknown, "the devices of this host: "+err.Error())
		}
	}
	for _, name := range needs.Modules {
		exists, err := hasModule("/", name)
		if err != nil {
			node.Unknown = append(node.Unknown, fmt.Sprintf("whether the kernel has the module %s: %v", name, err))
			continue
		}
		node.Modules[name] = exists
	}
	for _, name := range needs.Plugins {
		node.Plugins[name] = slices.ContainsFunc(pluginDirs, func(dir string) bool { return isProgram(filepath.Join(dir, name)) })
	}
	for _, dir := range needs.Stores {
		node.probeStore(dir)
	}
	for _, need := range needs.Leases {
		node.probeLeases(need)
	}
	for _, path := range needs.Files {
		node.probeFile(path)
	}
	if needs.Access {
		node.probeHostAccess()
	}
	if needs.API {
		node.probeAgent()
	}
	return node
}

// probeAgent finds out whether the agent can ask the API. The question names no pod: the agent refuses it without asking
// anybody.
func (n *Node) probeAgent() {
	_, err := control.Client{}.Ask(context.Background(), owner.Question{})
	if err != nil && !errors.Is(err, owner.ErrInvalid) {
		n.NoAPI = strings.TrimPrefix(err.Error(), owner.ErrUnavailable.Error()+": ")
	}
}

// probeStore finds out whether a checkpoint can be written.
func (n *Node) probeStore(dir string) {
	if problem, ok := n.writeProblem("a checkpoint", checkWritable(dir)); ok {
		n.Stores[dir] = problem
	}
}

// probeLeases finds out whether a lease can be written, and whether the network may have had another name before: its store has no lease, and
// another store has leases of its ranges.
func (n *Node) probeLeases(need leaseNeed) {
	if problem, ok := n.writeProblem("a lease", need.checkWritable()); ok {
		n.Leases[need.leaseStore] = problem
	}
	store, err := lease.Open(need.dir, need.name)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeWait)
	defer cancel()
	if leases, err := store.List(ctx); len(leases) == 0 && (err == nil || errors.Is(err, lease.ErrNotLeased)) {
		n.OlderLeases[need.leaseStore], _ = store.LeasedElsewhere(ctx, need.sets) // Who cannot read a store cannot write it, either.
	}
}

// storeWait bounds the look at a store. One that is in use is not new.
const storeWait = time.Second

// writeProblem says why something cannot be written, "" if err is nil. Plugins run as root. What another user may not write
// says nothing about them: then it is not known.
func (n *Node) writeProblem(subject string, err error) (problem string, ok bool) {
	switch {
	case err == nil:
		return "", true
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		n.Unknown = append(n.Unknown, fmt.Sprintf("whether %s can be written: %v: run as root", subject, err))
		return "", false
	}
	return err.Error(), true
}

// checkWritable says why no lease can be written. Without a file of the network, its directory counts:
// Store.Writable would make that directory.
func (l leaseStore) checkWritable() error {
	store, err := lease.Open(l.dir, l.name)
	if err != nil {
		return err
	}
	if exists, err := store.Exists(); err == nil && exists {
		return store.Writable()
	}
	return checkWritable(l.dir)
}

func (n *Node) probeFile(path string) {
	_, err := readRegular(path)
	switch {
	case err == nil || isNull(path):
		n.Files[path] = ""
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		n.Unknown = append(n.Unknown, fmt.Sprintf("whether %s can be read: %s: run as root", path, fileError(err)))
	default:
		n.Files[path] = fileError(err)
	}
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
	if err != nil {
		return err
	}
	defer host.Close()
	if n.Route, err = host.DefaultRouteDevice(); err != nil {
		return err
	}
	n.Devices, err = host.Devices()
	return err
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

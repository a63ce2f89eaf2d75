package capture

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// inspector is a look at what runs on the node.
type inspector struct {
	host        *kernel.Namespace
	hostDevices netstate.Devices
	cache       []cacheEntry
	// holders reads the holders of leases, which tell of what the cache does not. It is nil if nobody is to read them.
	holders func() []cacheEntry
	// records are the checkpoints that exist. attached are the names of interfaces that the operator
	// calls attached.
	records  recordIndex
	attached []string
	// refresh says that recorded interfaces are recorded anew.
	refresh bool
	// onlyLinks is for who looks again later: it leaves out what an interface has beside its link, its parents and its addresses, which takes most
	// of the time, and tells of NICs in namespaces that nobody knows yet.
	onlyLinks bool
	// extra are the networks for which the host has rules of iptables for host access.
	extra []netip.Prefix
}

// newInspector opens the host, and the caller closes it.
func newInspector(opts Options) (l *inspector, err error) {
	records, unreadable, err := opts.Store.List()
	if err != nil {
		return nil, err
	}
	l = &inspector{extra: opts.Store.Masquerade().Extra, records: indexRecords(records, unreadable), attached: opts.Attached, refresh: opts.Refresh}
	if l.host, err = kernel.OpenHost(); err != nil {
		return nil, err
	}
	if l.hostDevices, err = l.host.Devices(); err != nil {
		l.host.Close()
		return nil, err
	}
	return l, nil
}

// locateEntries returns the entries whose namespace exists.
func locateEntries(entries []cnicache.Entry) []cacheEntry {
	var result []cacheEntry
	for _, e := range entries {
		if file, ok := sandbox.Identify(e.Netns); e.Netns != "" && ok {
			result = append(result, cacheEntry{Entry: e, namespace: file})
		}
	}
	return result
}

// inspectNode looks into the sandboxes of the node, and decides about what it finds. More actions follow for checkpoints of other interfaces.
// onlyNew skips interfaces that have a record.
func (l *inspector) inspectNode(onlyNew bool) ([]InterfaceAction, error) {
	listed, err := sandbox.List()
	if err != nil {
		return nil, err
	}
	sandboxes := make([][]InterfaceAction, len(listed))
	inparallel.Do(runtime.GOMAXPROCS(0), len(listed), func(i int) { sandboxes[i] = l.inspectSandbox(listed[i], onlyNew) })
	actions := slices.Concat(sandboxes...)
	if l.refresh {
		actions = append(actions, decideUnmatched(l.records.unreadable, actions)...)
	}
	return actions, nil
}

// inspectSandbox is inspectNode for one sandbox. It finds nothing in a sandbox that has gone meanwhile.
func (l *inspector) inspectSandbox(s sandbox.Sandbox, onlyNew bool) []InterfaceAction {
	failed := func(namespace attachment.Namespace, err error) []InterfaceAction {
		return []InterfaceAction{matchedRecords{}.decide(l.failed(namespace, netstate.Link{}, err), l.refresh)}
	}
	namespace, err := kernel.OpenListed(s)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return nil
	}
	if err != nil {
		return failed(attachment.Namespace{Device: s.Device, Inode: s.Inode}, err)
	}
	defer namespace.Close()
	actions, err := l.inspectNamespace(namespace, onlyNew)
	if err != nil {
		return failed(namespace.Identity(), err)
	}
	return actions
}

// inspectNamespace is inspectSandbox for an open namespace.
func (l *inspector) inspectNamespace(namespace *kernel.Namespace, onlyNew bool) ([]InterfaceAction, error) {
	inspector, err := l.openInspector(namespace)
	if err != nil {
		return nil, err
	}
	var found []LiveInterface
	for _, d := range inspector.sandboxDevices {
		record, recorded := inspector.records.byIndex[d.Index]
		if d.Name == "lo" || onlyNew && recorded {
			continue
		}
		if inspector.limitSettings(l.refresh || !recorded, record); l.onlyLinks {
			inspector.extent = kernel.Extent{}
		}
		f, err := inspector.inspect(d.Name)
		if err != nil {
			failed := l.failed(namespace.Identity(), netstate.Link{Name: d.Name, Index: d.Index}, err)
			f = &failed
		}
		if f != nil {
			found = append(found, *f)
		}
	}
	return inspector.records.decideSandbox(found, l.refresh), nil
}

// identify returns whose the link is, in a sandbox with these devices. It asks for the leases only if nothing else tells all of it: there can be very many.
func (l *inspector) identify(namespace attachment.Namespace, devices netstate.Devices, link netstate.Link, records []checkpoint.Record) Identity {
	o := identify(namespace, devices, link, l.cache, records)
	if o.InCache || l.holders == nil {
		return o
	}
	return identify(namespace, devices, link, slices.Concat(l.cache, l.holders()), records)
}

// failed returns an interface, or a whole sandbox for a link without a name, that could not be looked at.
func (l *inspector) failed(namespace attachment.Namespace, link netstate.Link, err error) LiveInterface {
	owner := l.identify(namespace, nil, link, l.records.byNamespace[namespace.File()])
	return LiveInterface{Identity: owner, Namespace: namespace, Live: netstate.Interface{Link: link}, Settled: change.Failed, Reason: printable.Joined(err)}
}

// sandboxInspector is one sandbox that is looked into.
type sandboxInspector struct {
	*inspector
	namespace *kernel.Namespace
	// sandboxDevices are its devices, except those under construction.
	sandboxDevices netstate.Devices
	records        matchedRecords
	// extent is how much of an interface is read.
	extent kernel.Extent
	// stacks are what the sandbox has on the host's devices. It is nil before somebody asks.
	stacks map[hostStack][]sibling
}

func (l *inspector) openInspector(namespace *kernel.Namespace) (*sandboxInspector, error) {
	id := namespace.Identity()
	devices, err := namespace.Devices()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id.Path, err)
	}
	devices = slices.DeleteFunc(devices, kernel.Unfinished)
	return &sandboxInspector{inspector: l, namespace: namespace, sandboxDevices: devices, records: l.records.match(id, devices), extent: kernel.CheckpointExtent}, nil
}

// limitSettings says which sysctls of an interface inspect reads: all, or those that its record has. To read all takes most of the time.
func (r *sandboxInspector) limitSettings(unlimited bool, record checkpoint.Record) {
	r.extent.ChangedSettings, r.extent.Settings = unlimited, nil
	if !unlimited {
		r.extent.Settings = slices.Collect(maps.Keys(record.Interface.Settings))
	}
}

// inspect looks at one interface. It returns nil if the interface is gone, or if no checkpoint can hold
// it. It also returns nil if the interface is on no device of the host, is in no cache and is not
// recorded.
func (r *sandboxInspector) inspect(name string) (*LiveInterface, error) {
	host, path := r.hostDevices, r.namespace.Path()
	live, err := kernel.Capture(r.host, r.namespace, host, name, r.extent)
	if err != nil && !isNotCapturable(err) {
		host, live, err = r.retry(name)
	}
	vf := new(kernel.VFError)
	switch isVF := errors.As(err, &vf); {
	case isNotCapturable(err) && !isVF:
		return nil, nil
	case err != nil && !isVF:
		return nil, fmt.Errorf("%s: %s: %w", path, name, err)
	}
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	f := &LiveInterface{Namespace: r.namespace.Identity(), Live: live, ReadAt: uptime}
	f.Identity = r.identify(f.Namespace, r.sandboxDevices, live.Link, r.records.records)
	attached := f.InCache || r.records.recorded(live.Link.Index)
	switch {
	// What is on a device of the host was given to the sandbox, as a CNI plugin does, and so was hardware. What a process in the sandbox makes for
	// itself is not, except for what it stacks on a given interface (findOrigin).
	case !attached && len(checkpoint.HostParents(live)) == 0 && !isHardware(live):
		return nil, nil
	case !attached && isHardware(live) && f.Attachment.ContainerID == checkpoint.UnnamedID(f.Namespace):
		if !r.onlyLinks {
			return nil, nil
		}
		f.Settled, f.Reason = Skipped, unknownNIC
		return f, nil
	case err != nil:
		f.Settled, f.Reason, f.isVF = change.Refused, vf.Error(), true
		return f, nil
	case !attached && len(live.Parents) > 0:
		if f.Settled, f.Reason, err = r.findOrigin(*f); err != nil {
			return nil, err
		}
	}
	if _, readable := r.records.record(*f); !readable && r.extent.ForCheckpoint {
		if err := r.captureAccess(f); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	devices := host
	if live.ParentsInSandbox {
		devices = r.sandboxDevices
	}
	f.ParentDown = devices.FirstDown(live.Parents)
	if err := live.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %s can't be remembered: %w", path, name, err)
	}
	return f, nil
}

// unknownNIC is why a NIC is left alone in a namespace that may be no pod's.
const unknownNIC = "it is a NIC, and neither a container runtime nor a CNI cache knows its sandbox"

// isHardware says that the interface is a NIC with a place on a bus.
func isHardware(live netstate.Interface) bool {
	return live.Link.Kind == netstate.KindNIC && live.Link.NIC != nil && live.Link.NIC.BusAddress != ""
}

// captureAccess finds out which host access the interface has.
func (r *sandboxInspector) captureAccess(f *LiveInterface) (err error) {
	lost := hostaccess.LostPod{Devices: r.sandboxDevices, Interface: f.Live, Assigned: attachment.ResultAddresses(f.CNI.Result), Extra: r.extra}
	f.access, err = hostaccess.Capture(r.host, r.namespace, lost)
	return err
}

// isNotCapturable reports whether the error says that there is nothing for a checkpoint to hold.
func isNotCapturable(err error) bool {
	return errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrNoDevice)
}

// retry looks again, at the host too: devices can come and go during a look.
func (r *sandboxInspector) retry(name string) (netstate.Devices, netstate.Interface, error) {
	host, err := r.host.Devices()
	if err != nil {
		return nil, netstate.Interface{}, err
	}
	live, err := kernel.Capture(r.host, r.namespace, host, name, r.extent)
	if err == nil || isNotCapturable(err) {
		return host, live, err
	}
	if exists, existsErr := r.namespace.Exists(name); existsErr == nil && !exists {
		err = fmt.Errorf("%s: %w", name, kernel.ErrNoDevice)
	}
	return host, live, err
}

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// importFile is a file of i40e_net_fix, and what is known of its sandbox.
type importFile struct {
	netfix.File
	// built is the interface as the file says that it was built.
	built     netstate.Interface
	namespace attachment.Namespace
	// bootedAt is when the kernel started. startedAt is when the process started by which the file names the namespace. It is zero for a path
	// of another form.
	bootedAt, startedAt time.Time
	// rivals are the files of other sandboxes that name the same namespace.
	rivals []importFile
}

// Import writes checkpoints of what i40e_net_fix remembers in the directory. An interface that is there is captured as it is, if its MAC and
// its addresses prove whose it is. One that is gone is taken from its file, on what the operator says, if nothing speaks against the file.
func Import(ctx context.Context, opts Options, dir string, parent ParentSpec) (InterfaceReport, error) {
	listed, err := netfix.ReadDir(dir)
	if err != nil {
		return InterfaceReport{}, err
	}
	r := &captureRun{Options: opts}
	if r.inspector, err = newInspector(opts); err != nil {
		return InterfaceReport{}, err
	}
	defer r.inspector.host.Close()
	parents, mtu, err := parent.Resolve(r.inspector.hostDevices)
	if err != nil {
		return InterfaceReport{}, err
	}
	booted, err := sandbox.Booted()
	if err != nil {
		return InterfaceReport{}, err
	}
	files := make([]importFile, len(listed))
	for i, file := range listed {
		f := importFile{File: file, built: file.Interface(parents, mtu), bootedAt: booted}
		if f.Err == nil {
			f.Err = f.built.Validate()
		}
		if f.Err == nil {
			f.Err = r.inspector.locate(&f)
			r.inspector.cache = append(r.inspector.cache, cacheEntry{Entry: cnicache.Entry{Attachment: f.key(), MAC: f.MAC}, namespace: f.namespace.File()})
		}
		files[i] = f
	}
	for _, f := range files {
		f.rivals = rivalsOf(f, files)
		r.actions = append(r.actions, r.decideCandidate(f))
	}
	r.execute(ctx)
	return r.report(), nil
}

// errHost says that the namespace is the host's and not a sandbox's.
var errHost = errors.New("it is the host's own network namespace, not a sandbox's")

// locate finds out what the file's netns leads to. Its errors can be kernel.ErrNoNamespace and errHost.
func (l *inspector) locate(f *importFile) error {
	// To open anything else can block for ever, or have effects.
	if info, err := os.Stat(f.Netns); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is no file of the kernel's", f.Netns, kernel.ErrNoNamespace)
	}
	namespace, err := kernel.Open(f.Netns)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return fmt.Errorf("its sandbox is gone: %w", err)
	}
	if err != nil {
		return err
	}
	defer namespace.Close()
	f.namespace = namespace.Identity()
	if init, ok := sandbox.Identify("/proc/1/ns/net"); ok && init == f.namespace.File() || l.host.Identity().Same(f.namespace) == nil {
		return fmt.Errorf("netns %s: %w", f.Netns, errHost)
	}
	if pid, ok := sandbox.ProcessOf(f.Netns); ok {
		f.startedAt, err = sandbox.Started(pid, f.bootedAt)
	}
	return err
}

// rivalsOf are the files of other sandboxes that name the same namespace.
func rivalsOf(f importFile, files []importFile) (rivals []importFile) {
	for _, rival := range files {
		if rival.Err == nil && rival.ContainerID != f.ContainerID && rival.namespace.Same(f.namespace) == nil {
			rivals = append(rivals, rival)
		}
	}
	return rivals
}

// decideCandidate looks at the sandbox of the file, and decides.
func (r *captureRun) decideCandidate(f importFile) InterfaceAction {
	o := InterfaceOutcome{Outcome: change.Outcome{Pod: f.Pod()}, File: f.Path, Namespace: f.namespace}
	o.Interface.Link.Name = f.IfName
	if f.ContainerID != "" {
		o.Attachment = f.key()
	}
	a, err := InterfaceAction{InterfaceOutcome: o, file: &f}, f.Err
	if err == nil {
		a, err = r.redecide(a, r.inspector.records)
	}
	if err != nil {
		a.Fail(err)
	}
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, errHost) {
		a.State = change.Refused
	}
	return a
}

func (f importFile) key() attachment.Key {
	return attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: f.ContainerID, IfName: f.IfName}
}

// unknownConfig is the CNI configuration in the record of an import: the tool had none.
const unknownConfig = `{"name":"` + checkpoint.NetworkUnknown + `","type":"macvlan"}`

// decideFile decides about the interface that a file names. live is nil if it is gone. It remembers nothing of a
// namespace that may be a stranger's.
func (m matchedRecords) decideFile(file importFile, live *LiveInterface) (a InterfaceAction) {
	defer func() { a.file, a.File = &file, file.Path }()
	f := LiveInterface{Namespace: file.namespace, Live: file.built}
	note := fmt.Sprintf("%s is gone from the sandbox: remembered from the file, on %s", file.IfName, strings.Join(netstate.ChainNames(file.built.Parents), " < "))
	against := m.strangerReason(file)
	if live != nil {
		f, against = *live, file.contradiction(live.Live)
		f.Live, note = file.complete(live.Live)
	}
	f.Identity = Identity{Attachment: file.key(), Pod: file.Pod(), CNI: checkpoint.CNI{Config: []byte(unknownConfig), Result: file.Result}, Note: note}
	for _, r := range m.records {
		u, torn := m.node.torn[r.Attachment.WithoutNetwork()]
		switch {
		case r.Attachment.IfName != file.IfName:
		case torn:
			return recordAction(r, change.Refused, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err))
		case r.Attachment.SameInterface(file.key()), r.Interface.Link.MAC == file.MAC:
			return recordAction(r, change.Kept, "it has a checkpoint")
		default:
			against = fmt.Sprintf("the checkpoint of %s in the same namespace says MAC %s, the file %s", r.Attachment, r.Interface.Link.MAC, file.MAC)
		}
	}
	if a = m.decide(f, false); a.State == Captured && against != "" {
		a = a.decided(change.Refused, against)
	}
	return a
}

// complete returns the live interface with what it has lost, and says so. The file says less than the live interface.
func (f importFile) complete(live netstate.Interface) (_ netstate.Interface, note string) {
	note = f.IfName + " is there and as the file says: remembered as it is"
	if !live.Link.Up {
		live.Link.Up = true
		note += "; it is down, and remembered as up"
	}
	live.Routes, live.Settings = slices.Clone(live.Routes), f.Settings()
	for _, route := range f.Routes {
		if !slices.ContainsFunc(live.Routes, route.SameSlot) {
			live.Routes = append(live.Routes, route)
			note += fmt.Sprintf("; its route %s is missing, and remembered from the file", route)
		}
	}
	return live, note
}

// contradiction says how the live interface contradicts the file. It is empty if it does not. An
// additional address is no contradiction.
func (f importFile) contradiction(live netstate.Interface) string {
	missing := slices.ContainsFunc(f.Addresses, func(want netstate.Address) bool {
		return !slices.ContainsFunc(live.Addresses, func(l netstate.Address) bool { return l.Prefix == want.Prefix })
	})
	if live.Link.MAC != f.MAC || missing {
		return fmt.Sprintf("the sandbox is a stranger's by now: what is there as %s is a %s, %s with %v; the file says %s with %v",
			f.IfName, live.Link.Kind, live.Link.MAC, live.Addresses, f.MAC, f.Addresses)
	}
	return f.rivalReason(func(rival importFile) bool { return rival.MAC == f.MAC })
}

// rivalReason names another file that names the same namespace.
func (f importFile) rivalReason(counts func(importFile) bool) string {
	if i := slices.IndexFunc(f.rivals, counts); i >= 0 {
		return f.rivals[i].Path + " names the same namespace: only one of the files can be right"
	}
	return ""
}

// clockSlack is how far the times of files and of processes can be apart. The kernel takes them from
// different clocks.
const clockSlack = time.Second

// externalKinds are the kinds of devices that a sandbox is given. Processes in a sandbox make bridges,
// tunnels and dummies for themselves. The kernel makes some tunnels.
var externalKinds = []string{
	netstate.KindNIC, netstate.KindVLAN, netstate.KindMacvlan, "macvtap", "ipvlan", "ipvtap", "veth",
}

// strangerReason says what speaks against the namespace being the one of the file's sandbox. It is empty
// if nothing does. The tool gave a sandbox one interface. Once that is gone, the sandbox has none
// from outside. A device that is stacked on another of the sandbox, or is its peer, is not from outside.
func (m matchedRecords) strangerReason(f importFile) string {
	prefix := f.IfName + " is gone, and "
	if f.ModTime.Before(f.bootedAt.Add(-clockSlack)) {
		return prefix + "the file is of an earlier boot: so was its sandbox"
	}
	if f.startedAt.After(f.ModTime.Add(clockSlack)) {
		return prefix + fmt.Sprintf("the process at %s started after the file was written: it is a stranger's", f.Netns)
	}
	for _, d := range m.devices {
		if d.Name == f.IfName || d.Name != "lo" && d.ParentIndex == 0 && slices.Contains(externalKinds, d.Kind) {
			return prefix + fmt.Sprintf("the sandbox has %s (%s, %s) instead: it is a stranger's by now", d.Name, d.Kind, d.MAC)
		}
	}
	for _, r := range m.records {
		if r.Attachment.ContainerID != f.ContainerID {
			return prefix + fmt.Sprintf("the sandbox is that of the checkpoint of %s", r.Attachment)
		}
	}
	if reason := f.rivalReason(func(importFile) bool { return true }); reason != "" {
		return prefix + reason
	}
	return ""
}

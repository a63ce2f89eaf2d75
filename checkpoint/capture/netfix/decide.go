package netfix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// The values that this package writes as Writer. The second is for records that are from a file
// alone: the operator said what the interface was on, and that can be wrong.
const (
	Writer         = "relink import"
	WriterFromFile = "relink import from a file"
)

// IsImported says that an import wrote the record, and no capture since.
func IsImported(r checkpoint.Record) bool { return r.Writer == Writer || r.Writer == WriterFromFile }

// Candidate is one file, and what there is of its sandbox.
type Candidate struct {
	// Path is the file's.
	Path string
	File File
	// Err is why the file or its namespace cannot be used. Then only Path is set, and File if the
	// file could be read.
	Err error
	// ModTime is when the file was written.
	ModTime time.Time
	Sandbox SandboxState
}

// SandboxState is what the file's netns leads to.
type SandboxState struct {
	Namespace attachment.Namespace
	// Live is the interface, nil if it is gone. If it cannot be remembered, Live has the link and
	// perhaps no more, and Unsupported says why.
	Live        *netstate.Interface
	Unsupported error
	// External are the other interfaces of the sandbox that it did not make itself.
	External []netstate.LiveDevice
	// BootedAt is when the kernel started. StartedAt is when the process started by which the namespace
	// was opened. It is zero for a path of another form.
	BootedAt, StartedAt time.Time
}

// Node is what is remembered, and what lost interfaces were on.
type Node struct {
	Records    []checkpoint.Record
	Unreadable []checkpoint.Unreadable
	Parents    []netstate.Device
	// MTU is that of a lost interface.
	MTU int
	// Replace asks to write checkpoints anew that an import wrote from a file.
	Replace bool
}

// Source says where a checkpoint's contents are from.
type Source string

// The sources.
const (
	FromLive Source = "live" // The interface as it is in the sandbox.
	FromFile Source = "file" // The file, as the interface is gone.
)

// Decide returns what to do about each file that could be looked at. It remembers nothing of a
// namespace that may be a stranger's. An interface that is there proves whose it is by its MAC and
// addresses. If the interface is gone, nothing may speak against the file.
func Decide(found []Candidate, node Node) []FileOutcome {
	outcomes := make([]FileOutcome, len(found))
	for i, f := range found {
		if f.Err == nil {
			outcomes[i] = decide(f, conflictingFiles(f, found), node)
		}
	}
	return outcomes
}

// conflictingFiles are the files of other sandboxes that name the same namespace.
func conflictingFiles(f Candidate, found []Candidate) []string {
	var paths []string
	for _, candidate := range found {
		if candidate.Err == nil && candidate.File.ContainerID != f.File.ContainerID && candidate.Sandbox.Namespace.Same(f.Sandbox.Namespace) == nil {
			paths = append(paths, candidate.Path)
		}
	}
	return paths
}

func decide(f Candidate, rivals []string, node Node) FileOutcome {
	o := newOutcome(f)
	o.Namespace = f.Sandbox.Namespace
	earlier, decided := decideRecorded(&o, f, node)
	switch {
	case decided:
		return o
	case f.Sandbox.Live != nil:
		o.decideLive(f)
		return o
	}
	if reason := strangerReason(f, rivals, node.Records); reason != "" {
		o.refuse("%s is gone, and %s", f.File.IfName, reason)
		return o
	}
	o.State, o.Source, o.Interface = Imported, FromFile, interfaceFromFile(f.File, node)
	o.Reason = fmt.Sprintf("%s is gone from the sandbox: remembered from the file, on %s", f.File.IfName, chainNames(node.Parents))
	if earlier != nil {
		o.State = Replaced
		o.Reason = fmt.Sprintf("it was imported onto %s: remembered anew from the file, on %s", chainNames(earlier.Interface.Parents), chainNames(node.Parents))
	}
	return o
}

func (o *FileOutcome) refuse(format string, args ...any) {
	o.State, o.Interface, o.Reason = Refused, netstate.Interface{}, fmt.Sprintf(format, args...)
}

// decideRecorded decides about an attachment that has a checkpoint already. The checkpoint can have another
// container ID, if capture did not know the right one. If it is to be replaced, decideRecorded returns it.
func decideRecorded(o *FileOutcome, f Candidate, node Node) (earlier *checkpoint.Record, decided bool) {
	for _, u := range node.Unreadable {
		if u.ContainerID == f.File.ContainerID && (u.IfName == f.File.IfName || u.IfName == "") {
			o.refuse("its checkpoint cannot be read: %v", u.Err)
			return nil, true
		}
	}
	for _, r := range node.Records {
		sameName := r.Attachment.ContainerID == f.File.ContainerID && r.Attachment.IfName == f.File.IfName
		sameNamespace := r.Namespace.Same(f.Sandbox.Namespace) == nil
		switch {
		case sameName && !sameNamespace:
			o.refuse("its name is that of a checkpoint of another namespace, %s", r.Namespace.Path)
		case sameName && node.Replace:
			return decideReplace(o, f, r, node)
		case sameName:
			o.keepRecord(r, "it has a checkpoint")
		case !sameNamespace || r.Attachment.IfName != f.File.IfName:
			continue
		case r.Interface.Link.MAC == f.File.MAC:
			o.keepRecord(r, "it has a checkpoint, as "+r.Attachment.ContainerID)
		default:
			o.refuse("the checkpoint of %s in the same namespace says MAC %s, the file %s", r.Attachment, r.Interface.Link.MAC, f.File.MAC)
		}
		return nil, true
	}
	return nil, false
}

// decideReplace returns the record if it is to be replaced: it is from a file alone, and the import
// says something else now. What was live is never replaced by what a file says.
func decideReplace(o *FileOutcome, f Candidate, r checkpoint.Record, node Node) (earlier *checkpoint.Record, decided bool) {
	o.keepRecord(r, "it was imported like this already")
	live := f.Sandbox.Live
	switch {
	case r.Writer != WriterFromFile:
		o.Reason = fmt.Sprintf("its checkpoint is not from a file: %s wrote it, from the live interface", r.Writer)
	case len(netstate.Diff(interfaceFromFile(f.File, node), r.Interface)) == 0:
	case live != nil:
		o.refuse("it was imported onto %s, and %s is there, on %s. To keep that: relink capture --refresh %s. To import it anew: "+
			"take it away first (nsenter --net=%s ip link del %s)", chainNames(r.Interface.Parents), live.Link.Name, chainNames(live.Parents), r.Attachment.ContainerID, f.Sandbox.Namespace.Path, live.Link.Name)
	default:
		return &r, false
	}
	return nil, true
}

func (o *FileOutcome) keepRecord(r checkpoint.Record, reason string) {
	o.State, o.Attachment, o.Pod, o.Interface, o.Reason = Kept, r.Attachment, r.Pod, r.Interface, reason
}

// decideLive remembers the interface as it is: the file says less. A route that it has lost is
// remembered from the file, and that it is up.
func (o *FileOutcome) decideLive(f Candidate) {
	state := f.Sandbox
	if state.Unsupported != nil && state.Live.Link.MAC == f.File.MAC {
		o.refuse("it can't be remembered: %v", state.Unsupported)
		return
	}
	if reason := contradiction(f.File, *state.Live); reason != "" {
		o.refuse("the sandbox is a stranger's by now: %s", reason)
		return
	}
	o.State, o.Source, o.Interface = Imported, FromLive, *state.Live
	reasons := []string{f.File.IfName + " is there and as the file says: remembered as it is"}
	if !o.Interface.Link.Up {
		o.Interface.Link.Up = true
		reasons = append(reasons, "it is down, and remembered as up")
	}
	o.Interface.Routes = slices.Clone(o.Interface.Routes)
	for _, route := range f.File.Routes {
		if !slices.ContainsFunc(o.Interface.Routes, route.SameSlot) {
			o.Interface.Routes = append(o.Interface.Routes, route)
			reasons = append(reasons, fmt.Sprintf("its route %s is missing, and remembered from the file", route))
		}
	}
	o.Interface.Settings = settings(f.File)
	o.Reason = strings.Join(reasons, "; ")
}

// contradiction says how the live interface contradicts the file. It is empty if it does not. An
// additional address is no contradiction.
func contradiction(file File, live netstate.Interface) string {
	var want, present []string
	missing := false
	for _, address := range file.Addresses {
		want = append(want, address.Prefix.String())
		missing = missing || !slices.ContainsFunc(live.Addresses, func(l netstate.Address) bool { return l.Prefix == address.Prefix })
	}
	if live.Link.MAC == file.MAC && !missing {
		return ""
	}
	for _, address := range live.Addresses {
		present = append(present, address.Prefix.String())
	}
	return fmt.Sprintf("what is there as %s is a %s, %s with %s; the file says %s with %s",
		file.IfName, live.Link.Kind, live.Link.MAC, joinAddresses(present), file.MAC, joinAddresses(want))
}

func joinAddresses(addresses []string) string {
	if len(addresses) == 0 {
		return "no address"
	}
	return strings.Join(addresses, ", ")
}

// clockSlack is how far the times of files and of processes can be apart. The kernel takes them from
// different clocks.
const clockSlack = time.Second

// strangerReason says what speaks against the namespace being the one of the file's sandbox. It is empty
// if nothing does. The tool gave a sandbox one interface. Once that is gone, the sandbox has none
// from outside.
func strangerReason(f Candidate, rivals []string, records []checkpoint.Record) string {
	state := f.Sandbox
	if f.ModTime.Before(state.BootedAt.Add(-clockSlack)) {
		return "the file is of an earlier boot: so was its sandbox"
	}
	if state.StartedAt.After(f.ModTime.Add(clockSlack)) {
		return fmt.Sprintf("the process at %s started after the file was written: it is a stranger's", f.File.Netns)
	}
	if len(state.External) > 0 {
		d := state.External[0]
		return fmt.Sprintf("the sandbox has %s (%s, %s) instead: it is a stranger's by now", d.Name, d.Kind, d.MAC)
	}
	if len(rivals) > 0 {
		return fmt.Sprintf("%s names the same namespace: only one of the files can be right", strings.Join(rivals, ", "))
	}
	for _, r := range records {
		if r.Attachment.ContainerID != f.File.ContainerID && r.Namespace.Same(state.Namespace) == nil {
			return fmt.Sprintf("the sandbox is that of the checkpoint of %s", r.Attachment)
		}
	}
	return ""
}

// interfaceFromFile is the interface as the tool built it.
func interfaceFromFile(file File, node Node) netstate.Interface {
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: file.IfName, MAC: file.MAC, MTU: node.MTU, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Parents: node.Parents, Addresses: file.Addresses, Routes: file.Routes, Settings: settings(file),
	}
}

// settings are the sysctls that the tool set. The pod answers for others (proxy ARP), and IPv6 is on
// if it is used.
func settings(file File) map[string]string {
	s := map[string]string{"ipv4/proxy_arp": "1"}
	if slices.ContainsFunc(file.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr().Is6() }) {
		s["ipv6/disable_ipv6"] = "0"
	}
	return s
}

func chainNames(parents []netstate.Device) string {
	var result []string
	for _, p := range parents {
		result = append(result, p.Name)
	}
	return strings.Join(result, " < ")
}

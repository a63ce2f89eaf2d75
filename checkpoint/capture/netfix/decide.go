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

// FileVerb is what to do about a file.
type FileVerb string

// The verbs.
const (
	Import  FileVerb = "import"  // Write the checkpoint.
	Replace FileVerb = "replace" // Write a checkpoint in place of the one that an import wrote.
	Keep    FileVerb = "keep"    // Leave the checkpoint that is there as it is.
	Refuse  FileVerb = "refuse"  // Write none.
)

// Source says where a checkpoint's contents are from.
type Source string

// The sources.
const (
	FromLive Source = "live" // The interface as it is in the sandbox.
	FromFile Source = "file" // The file, as the interface is gone.
)

// FileAction is what to do about one file, and why.
type FileAction struct {
	Verb       FileVerb
	Attachment attachment.Key
	Pod        attachment.Pod
	Namespace  attachment.Namespace
	// Interface and Source are what to remember.
	Interface netstate.Interface
	Source    Source
	Reason    string
}

// Decide returns what to do about each file that could be looked at. It remembers nothing of a
// namespace that may be a stranger's. An interface that is there proves whose it is by its MAC and
// addresses. If the interface is gone, nothing may speak against the file.
func Decide(found []Candidate, node Node) []FileAction {
	actions := make([]FileAction, len(found))
	for i, f := range found {
		if f.Err == nil {
			actions[i] = decide(f, conflictingFiles(f, found), node)
		}
	}
	return actions
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

func decide(f Candidate, rivals []string, node Node) FileAction {
	a := FileAction{
		Attachment: attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: f.File.ContainerID, IfName: f.File.IfName},
		Pod:        f.File.Pod(),
		Namespace:  f.Sandbox.Namespace,
	}
	earlier, reason := decideRecorded(&a, f, node)
	if reason != "" {
		a.Reason = reason
		return a
	}
	if f.Sandbox.Live != nil {
		return decideLive(a, f)
	}
	if reason := strangerReason(f, rivals, node.Records); reason != "" {
		a.Verb, a.Reason = Refuse, fmt.Sprintf("%s is gone, and %s", f.File.IfName, reason)
		return a
	}
	a.Verb, a.Source, a.Interface = Import, FromFile, interfaceFromFile(f.File, node)
	a.Reason = fmt.Sprintf("%s is gone from the sandbox: remembered from the file, on %s", f.File.IfName, chainNames(node.Parents))
	if earlier != nil {
		a.Verb = Replace
		a.Reason = fmt.Sprintf("it was imported onto %s: remembered anew from the file, on %s", chainNames(earlier.Interface.Parents), chainNames(node.Parents))
	}
	return a
}

// decideRecorded decides about an attachment that has a checkpoint already. The checkpoint can have another
// container ID, if capture did not know the right one. decideRecorded returns the checkpoint that is to be
// replaced, or why nothing is written. It returns neither if there is no checkpoint.
func decideRecorded(a *FileAction, f Candidate, node Node) (earlier *checkpoint.Record, reason string) {
	for _, u := range node.Unreadable {
		if u.ContainerID == f.File.ContainerID && (u.IfName == f.File.IfName || u.IfName == "") {
			a.Verb = Refuse
			return nil, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
		}
	}
	for _, r := range node.Records {
		sameName := r.Attachment.ContainerID == f.File.ContainerID && r.Attachment.IfName == f.File.IfName
		sameNamespace := r.Namespace.Same(f.Sandbox.Namespace) == nil
		switch {
		case sameName && !sameNamespace:
			a.Verb = Refuse
			return nil, fmt.Sprintf("its name is that of a checkpoint of another namespace, %s", r.Namespace.Path)
		case sameName && node.Replace:
			return decideReplace(a, f, r, node)
		case sameName:
			a.keepRecord(r)
			return nil, "it has a checkpoint"
		case !sameNamespace || r.Attachment.IfName != f.File.IfName:
		case r.Interface.Link.MAC == f.File.MAC:
			a.keepRecord(r)
			return nil, "it has a checkpoint, as " + r.Attachment.ContainerID
		default:
			a.Verb = Refuse
			return nil, fmt.Sprintf("the checkpoint of %s in the same namespace says MAC %s, the file %s", r.Attachment, r.Interface.Link.MAC, f.File.MAC)
		}
	}
	return nil, ""
}

// decideReplace returns the record if it is to be replaced: it is from a file alone, and the import
// says something else now. What was live is never replaced by what a file says.
func decideReplace(a *FileAction, f Candidate, r checkpoint.Record, node Node) (earlier *checkpoint.Record, reason string) {
	a.keepRecord(r)
	live := f.Sandbox.Live
	switch {
	case r.Writer != WriterFromFile:
		return nil, fmt.Sprintf("its checkpoint is not from a file: %s wrote it, from the live interface", r.Writer)
	case len(netstate.Diff(interfaceFromFile(f.File, node), r.Interface)) == 0:
		return nil, "it was imported like this already"
	case live != nil:
		a.Verb = Refuse
		return nil, fmt.Sprintf("it was imported onto %s, and %s is there, on %s. To keep that: relink capture --refresh %s. To import it anew: "+
			"take it away first (nsenter --net=%s ip link del %s)", chainNames(r.Interface.Parents), live.Link.Name, chainNames(live.Parents), r.Attachment.ContainerID, f.Sandbox.Namespace.Path, live.Link.Name)
	}
	return &r, ""
}

func (a *FileAction) keepRecord(r checkpoint.Record) {
	a.Verb, a.Attachment, a.Pod, a.Interface = Keep, r.Attachment, r.Pod, r.Interface
}

// decideLive remembers the interface as it is: the file says less. A route that it has lost is
// remembered from the file, and that it is up.
func decideLive(a FileAction, f Candidate) FileAction {
	state := f.Sandbox
	if state.Unsupported != nil && state.Live.Link.MAC == f.File.MAC {
		a.Verb, a.Reason = Refuse, fmt.Sprintf("it can't be remembered: %v", state.Unsupported)
		return a
	}
	if reason := contradiction(f.File, *state.Live); reason != "" {
		a.Verb, a.Reason = Refuse, "the sandbox is a stranger's by now: "+reason
		return a
	}
	a.Verb, a.Source, a.Interface = Import, FromLive, *state.Live
	reasons := []string{f.File.IfName + " is there and as the file says: remembered as it is"}
	if !a.Interface.Link.Up {
		a.Interface.Link.Up = true
		reasons = append(reasons, "it is down, and remembered as up")
	}
	a.Interface.Routes = slices.Clone(a.Interface.Routes)
	for _, route := range f.File.Routes {
		if !slices.ContainsFunc(a.Interface.Routes, route.SameSlot) {
			a.Interface.Routes = append(a.Interface.Routes, route)
			reasons = append(reasons, fmt.Sprintf("its route %s is missing, and remembered from the file", route))
		}
	}
	a.Interface.Settings = settings(f.File)
	a.Reason = strings.Join(reasons, "; ")
	return a
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

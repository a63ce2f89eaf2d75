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

// IsOurs says that an import wrote the record, and no capture since.
func IsOurs(r checkpoint.Record) bool { return r.Writer == Writer || r.Writer == WriterFromFile }

// isFromFile says that the record is from a file alone. Older relinks did not note that. In their
// records the interface has no index until a restore has built it.
func isFromFile(r checkpoint.Record) bool {
	return r.Writer == WriterFromFile || r.Writer == Writer && r.Interface.Link.Index == 0
}

// Found is one file, and what there is of its sandbox.
type Found struct {
	// Path is the file's.
	Path string
	File File
	// Err is why the file or its namespace cannot be used. Then only Path is set, and File if the
	// file could be read.
	Err error
	// Written is when the file was written.
	Written time.Time
	There   There
}

// There is what the file's netns leads to.
type There struct {
	Namespace attachment.Namespace
	// Live is the interface, nil if it is gone. If it cannot be remembered, Live has the link and
	// perhaps no more, and Unsupported says why.
	Live        *netstate.Interface
	Unsupported error
	// Outside are the other interfaces of the sandbox that it did not make itself.
	Outside []netstate.LiveDevice
	// Booted is when the kernel started. Started is when the process started by which the namespace
	// was opened. It is zero for a path of another form.
	Booted, Started time.Time
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

// Verb is what to do about a file.
type Verb string

// The verbs.
const (
	Import  Verb = "import"  // Write the checkpoint.
	Replace Verb = "replace" // Write a checkpoint in place of the one that an import wrote.
	Keep    Verb = "keep"    // Leave the checkpoint that is there as it is.
	Refuse  Verb = "refuse"  // Write none.
)

// Source says where a checkpoint's contents are from.
type Source string

// The sources.
const (
	FromLive Source = "live" // The interface as it is in the sandbox.
	FromFile Source = "file" // The file, as the interface is gone.
)

// Action is what to do about one file, and why.
type Action struct {
	Do         Verb
	Attachment attachment.Key
	Pod        attachment.Pod
	Namespace  attachment.Namespace
	// Interface and From are what to remember.
	Interface netstate.Interface
	From      Source
	Reason    string
}

// Decide returns what to do about each file that could be looked at. It remembers nothing of a
// namespace that may be a stranger's. An interface that is there proves whose it is by its MAC and
// addresses. If the interface is gone, nothing may speak against the file.
func Decide(found []Found, node Node) []Action {
	actions := make([]Action, len(found))
	for i, f := range found {
		if f.Err == nil {
			actions[i] = decide(f, rivals(f, found), node)
		}
	}
	return actions
}

// rivals are the files of other sandboxes that name the same namespace.
func rivals(f Found, found []Found) []string {
	var paths []string
	for _, other := range found {
		if other.Err == nil && other.File.Sandbox != f.File.Sandbox && other.There.Namespace.Same(f.There.Namespace) == nil {
			paths = append(paths, other.Path)
		}
	}
	return paths
}

func decide(f Found, rivals []string, node Node) Action {
	a := Action{
		Attachment: attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: f.File.Sandbox, IfName: f.File.IfName},
		Pod:        f.File.Pod(),
		Namespace:  f.There.Namespace,
	}
	earlier, why := known(&a, f, node)
	if why != "" {
		a.Reason = why
		return a
	}
	if f.There.Live != nil {
		return decideLive(a, f)
	}
	if why := stranger(f, rivals, node.Records); why != "" {
		a.Do, a.Reason = Refuse, fmt.Sprintf("%s is gone, and %s", f.File.IfName, why)
		return a
	}
	a.Do, a.From, a.Interface = Import, FromFile, gone(f.File, node)
	a.Reason = fmt.Sprintf("%s is gone from the sandbox: remembered from the file, on %s", f.File.IfName, names(node.Parents))
	if earlier != nil {
		a.Do = Replace
		a.Reason = fmt.Sprintf("it was imported onto %s: remembered anew from the file, on %s", names(earlier.Interface.Parents), names(node.Parents))
	}
	return a
}

// known decides about an attachment that has a checkpoint already. The checkpoint can have another
// container ID, if capture did not know the right one. known returns the checkpoint that is to be
// replaced, or why nothing is written. It returns neither if there is no checkpoint.
func known(a *Action, f Found, node Node) (earlier *checkpoint.Record, why string) {
	for _, u := range node.Unreadable {
		if u.ContainerID == f.File.Sandbox && (u.IfName == f.File.IfName || u.IfName == "") {
			a.Do = Refuse
			return nil, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
		}
	}
	for _, r := range node.Records {
		own := r.Attachment.ContainerID == f.File.Sandbox && r.Attachment.IfName == f.File.IfName
		same := r.Namespace.Same(f.There.Namespace) == nil
		switch {
		case own && !same:
			a.Do = Refuse
			return nil, fmt.Sprintf("its name is that of a checkpoint of another namespace, %s", r.Namespace.Path)
		case own && node.Replace:
			return replaceable(a, f, r, node)
		case own:
			a.keep(r)
			return nil, "it has a checkpoint"
		case !same || r.Attachment.IfName != f.File.IfName:
		case r.Interface.Link.MAC == f.File.MAC:
			a.keep(r)
			return nil, "it has a checkpoint, as " + r.Attachment.ContainerID
		default:
			a.Do = Refuse
			return nil, fmt.Sprintf("the checkpoint of %s in the same namespace says MAC %s, the file %s", r.Attachment, r.Interface.Link.MAC, f.File.MAC)
		}
	}
	return nil, ""
}

// replaceable returns the record if it is to be replaced: it is from a file alone, and the import
// says something else now. What was live is never replaced by what a file says.
func replaceable(a *Action, f Found, r checkpoint.Record, node Node) (earlier *checkpoint.Record, why string) {
	a.keep(r)
	live := f.There.Live
	switch {
	case !isFromFile(r):
		return nil, fmt.Sprintf("its checkpoint is not from a file: %s wrote it, from the live interface", r.Writer)
	case len(netstate.Diff(gone(f.File, node), r.Interface)) == 0:
		return nil, "it was imported like this already"
	case live != nil:
		a.Do = Refuse
		return nil, fmt.Sprintf("it was imported onto %s, and %s is there, on %s. To keep that: relink capture --refresh %s. To import it anew: "+
			"take it away first (nsenter --net=%s ip link del %s)", names(r.Interface.Parents), live.Link.Name, names(live.Parents), r.Attachment.ContainerID, f.There.Namespace.Path, live.Link.Name)
	}
	return &r, ""
}

func (a *Action) keep(r checkpoint.Record) {
	a.Do, a.Attachment, a.Pod, a.Interface = Keep, r.Attachment, r.Pod, r.Interface
}

// decideLive remembers the interface as it is: the file says less. A route that it has lost is
// remembered from the file, and that it is up.
func decideLive(a Action, f Found) Action {
	there := f.There
	if there.Unsupported != nil && there.Live.Link.MAC == f.File.MAC {
		a.Do, a.Reason = Refuse, fmt.Sprintf("it can't be remembered: %v", there.Unsupported)
		return a
	}
	if why := contradiction(f.File, *there.Live); why != "" {
		a.Do, a.Reason = Refuse, "the sandbox is a stranger's by now: "+why
		return a
	}
	a.Do, a.From, a.Interface = Import, FromLive, *there.Live
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
	var want, have []string
	missing := false
	for _, address := range file.Addresses {
		want = append(want, address.Prefix.String())
		missing = missing || !slices.ContainsFunc(live.Addresses, func(l netstate.Address) bool { return l.Prefix == address.Prefix })
	}
	if live.Link.MAC == file.MAC && !missing {
		return ""
	}
	for _, address := range live.Addresses {
		have = append(have, address.Prefix.String())
	}
	return fmt.Sprintf("what is there as %s is a %s, %s with %s; the file says %s with %s",
		file.IfName, live.Link.Kind, live.Link.MAC, list(have), file.MAC, list(want))
}

func list(addresses []string) string {
	if len(addresses) == 0 {
		return "no address"
	}
	return strings.Join(addresses, ", ")
}

// slack is how far the times of files and of processes can be apart. The kernel takes them from
// different clocks.
const slack = time.Second

// stranger says what speaks against the namespace being the one of the file's sandbox. It is empty
// if nothing does. The tool gave a sandbox one interface. Once that is gone, the sandbox has none
// from outside.
func stranger(f Found, rivals []string, records []checkpoint.Record) string {
	there := f.There
	if f.Written.Before(there.Booted.Add(-slack)) {
		return "the file is of an earlier boot: so was its sandbox"
	}
	if there.Started.After(f.Written.Add(slack)) {
		return fmt.Sprintf("the process at %s started after the file was written: it is a stranger's", f.File.Netns)
	}
	if len(there.Outside) > 0 {
		d := there.Outside[0]
		return fmt.Sprintf("the sandbox has %s (%s, %s) instead: it is a stranger's by now", d.Name, d.Kind, d.MAC)
	}
	if len(rivals) > 0 {
		return fmt.Sprintf("%s names the same namespace: only one of the files can be right", strings.Join(rivals, ", "))
	}
	for _, r := range records {
		if r.Attachment.ContainerID != f.File.Sandbox && r.Namespace.Same(there.Namespace) == nil {
			return fmt.Sprintf("the sandbox is that of the checkpoint of %s", r.Attachment)
		}
	}
	return ""
}

// gone is the interface as the tool built it.
func gone(file File, node Node) netstate.Interface {
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

func names(parents []netstate.Device) string {
	var all []string
	for _, p := range parents {
		all = append(all, p.Name)
	}
	return strings.Join(all, " < ")
}

package capture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// IdentitySources tell whose the sandboxes of the node and their interfaces are.
type IdentitySources struct {
	Cache *cnicache.Cache
	// Runtime is the container runtime, nil if nobody is to ask it.
	Runtime sandbox.Runtime
	// Networks returns the interfaces that Multus says it has attached to the pod, from the Kubernetes API. It may be nil.
	Networks func(attachment.Pod) []attachment.PodNetwork
}

// Identities are what the sources said at one time. The zero value knows nobody.
type Identities struct {
	// AsOf is when the sources were asked first: what changed later is not in it.
	AsOf time.Time
	// CacheProblem says why the CNI caches may have more entries, empty if these are all: torn are the files that nobody can read, and cacheErr is
	// about all. RuntimeProblem says so of the runtime's sandboxes.
	// NoRuntime says that the node has no container runtime.
	CacheProblem, RuntimeProblem string
	NoRuntime                    bool

	torn     []cnicache.UnreadableError
	cacheErr error
	entries  map[attachment.NamespaceFile][]cacheEntry
	// cached are the interfaces whose results libcni keeps, by container ID. A DEL removes a result, and not Multus's list of delegates.
	cached  map[string]map[string]cachedInterface
	runtime map[attachment.NamespaceFile]sandbox.RuntimeSandbox
}

// cachedInterface has the results that libcni keeps of an interface. byMultus says that Multus called libcni.
type cachedInterface struct {
	results  []json.RawMessage
	byMultus bool
}

// Read asks the sources. Those that fail are in the result with what they said, and why.
func (s IdentitySources) Read(ctx context.Context) Identities {
	ids := Identities{
		AsOf: time.Now(), entries: map[attachment.NamespaceFile][]cacheEntry{}, cached: map[string]map[string]cachedInterface{},
		runtime: map[attachment.NamespaceFile]sandbox.RuntimeSandbox{},
	}
	entries, torn, err := s.Cache.Read()
	ids.torn, ids.cacheErr = torn, err
	for _, e := range torn {
		err = errors.Join(err, e)
	}
	if err != nil {
		ids.CacheProblem = printable.Joined(err)
	}
	for _, e := range entries {
		if e.Result == nil {
			continue
		}
		if ids.cached[e.Attachment.ContainerID] == nil {
			ids.cached[e.Attachment.ContainerID] = map[string]cachedInterface{}
		}
		i := ids.cached[e.Attachment.ContainerID][e.Attachment.IfName]
		ids.cached[e.Attachment.ContainerID][e.Attachment.IfName] = cachedInterface{append(i.results, e.Result), i.byMultus || e.Delegate}
	}
	for _, e := range locateEntries(entries) {
		ids.entries[e.namespace] = append(ids.entries[e.namespace], e)
	}
	s.readRuntime(ctx, &ids)
	return ids
}

// readRuntime adds the runtime's sandboxes. What the runtime says of a namespace counts more than what caches have kept of it.
func (s IdentitySources) readRuntime(ctx context.Context, ids *Identities) {
	if s.Runtime == nil {
		ids.NoRuntime = true
		return
	}
	sandboxes, err := s.Runtime.Sandboxes(ctx)
	if ids.NoRuntime = errors.Is(err, sandbox.ErrNoRuntime); err != nil {
		ids.RuntimeProblem = printable.Joined(err)
	}
	for _, ready := range []bool{true, false} { // A ready one counts where two have had one namespace.
		for _, r := range sandboxes {
			if r.Ready == ready {
				s.addSandbox(ids, r)
			}
		}
	}
}

// addSandbox adds a sandbox of the runtime.
func (s IdentitySources) addSandbox(ids *Identities, r sandbox.RuntimeSandbox) {
	file, ok := sandbox.Identify(r.Netns)
	if r.Netns == "" || !ok || r.HostNetwork || !r.Ready && ids.runtime[file].Ready {
		return
	}
	ids.runtime[file] = r
	entries := filterEntries(ids.entries[file], func(e cacheEntry) bool { return e.Attachment.ContainerID == r.ContainerID })
	for i, e := range entries {
		if e.Pod.Namespace == r.Pod.Namespace && e.Pod.Name == r.Pod.Name {
			entries[i].Pod = r.Pod // Not every runtime gives the UID to its plugins.
		}
	}
	entry := cacheEntry{Entry: cnicache.Entry{Attachment: attachment.Key{ContainerID: r.ContainerID}, Pod: r.Pod}, namespace: file}
	ids.entries[file] = append(append(entries, entry), s.networkEntries(entry, entries)...)
}

// networkEntries returns the interfaces of the pod's network status that no cache names.
func (s IdentitySources) networkEntries(ofSandbox cacheEntry, cached []cacheEntry) (entries []cacheEntry) {
	if s.Networks == nil {
		return nil
	}
	for _, n := range s.Networks(ofSandbox.Pod) {
		e := ofSandbox
		e.Attachment.Network, e.Attachment.IfName, e.MAC = n.Network, n.Interface, n.MAC
		cachedToo := len(filterEntries(cached, func(c cacheEntry) bool { return c.Attachment.IfName == n.Interface })) > 0
		if !cachedToo && e.Attachment.Validate() == nil {
			entries = append(entries, e)
		}
	}
	return entries
}

// ADD says how far the runtime is with the sandbox.
type ADD string

// The stages.
const (
	// ADDEnded: the runtime says that the sandbox is ready, or libcni has kept the result of its last plugin.
	ADDEnded ADD = "ended"
	// ADDKept: libcni has kept a result, and the runtime, which answers, does not have the sandbox yet: it can have several networks.
	ADDKept ADD = "kept"
	// ADDUnderWay: plugins are or may be at work.
	ADDUnderWay ADD = "under way"
	// ADDUnknown: nobody knows the sandbox, and there is no runtime to ask.
	ADDUnknown ADD = "unknown"
	// DELDue: the runtime has stopped the sandbox.
	DELDue ADD = "DEL due"
)

// loopback is the interface of the network cni-loopback, which containerd attaches beside the pod's (go-cni, WithLoNetwork).
const loopback = "lo"

// Stage says how far the runtime is with the sandbox.
func (ids Identities) Stage(file attachment.NamespaceFile) ADD {
	stage, _ := ids.stage(file)
	return stage
}

// stage says how far the runtime is with the sandbox, and why. It is a pure function of what the sources said. The runtime keeps the result of an ADD
// only when all plugins of its network are done (libcni, AddNetworkList), Multus and its delegates among them.
func (ids Identities) stage(file attachment.NamespaceFile) (ADD, string) {
	r, exists := ids.runtime[file]
	kept := len(filterEntries(ids.entries[file], func(e cacheEntry) bool {
		return e.Netns != "" && !e.Delegate && e.Attachment.IfName != loopback
	})) > 0
	switch {
	case exists && r.Ready:
		return ADDEnded, "the container runtime says that the sandbox is ready"
	case exists:
		return DELDue, "the container runtime has stopped the sandbox"
	case kept && !ids.NoRuntime && ids.RuntimeProblem == "":
		return ADDKept, "the container runtime does not have the sandbox yet"
	case kept:
		return ADDEnded, "libcni has kept the result of its ADD"
	case ids.NoRuntime && len(ids.cached) == 0:
		return ADDUnknown, "there is no container runtime, and no CNI cache"
	case ids.RuntimeProblem != "":
		return ADDUnderWay, "no CNI cache knows the sandbox, and the container runtime does not tell of it: " + ids.RuntimeProblem
	}
	return ADDUnderWay, "neither the container runtime nor a CNI cache knows the sandbox"
}

// ReadyPod returns the pod of the sandbox. ready says that it is known, that its ADD is over, and that the caches tell all of its interfaces.
func (ids Identities) ReadyPod(file attachment.NamespaceFile) (pod attachment.Pod, ready bool) {
	id, pod, unique := commonSandbox(ids.entries[file])
	return pod, unique && ids.Stage(file) == ADDEnded && len(ids.cached[id]) > 0 && !ids.mayName(id)
}

// mayName says that a file that nobody can read may be about the container.
func (ids Identities) mayName(containerID string) bool {
	return ids.cacheErr != nil || slices.ContainsFunc(ids.torn, func(e cnicache.UnreadableError) bool { return e.MayName(containerID) })
}

// IsDetached says that no cache names the container. Caches without any entry say nothing.
func (ids Identities) IsDetached(containerID string) bool {
	return !ids.mayName(containerID) && len(ids.cached) > 0 && ids.cached[containerID] == nil
}

// DetachedReason says what of the caches proves that another program's DEL took the attachment, empty if nothing does. result is what libcni had
// kept of it when it was recorded, nil for nothing. goneAlone says that its interface went while its parent was there. Otherwise libcni must have
// kept another result since, or Multus's cache must have named it once, and must still name its sandbox: somebody can have wiped that cache.
// ForgetDetached sees to it that no device has its index.
func (ids Identities) DetachedReason(key attachment.Key, result json.RawMessage, goneAlone bool) string {
	interfaces := ids.cached[key.ContainerID]
	cached, named := interfaces[key.IfName]
	isRecorded := func(r json.RawMessage) bool { return sameJSON(r, result) }
	switch {
	case ids.mayName(key.ContainerID) || ids.AsOf.IsZero():
		return ""
	case named && len(result) > 0 && !slices.ContainsFunc(cached.results, isRecorded):
		return "libcni has the result of a later ADD"
	case named:
		return ""
	case goneAlone:
		return "it went while its parent was there, and no CNI cache names it"
	case len(result) > 0 && slices.ContainsFunc(slices.Collect(maps.Values(interfaces)), func(i cachedInterface) bool { return i.byMultus }):
		return "Multus's cache names its sandbox, and does not name it any more"
	}
	return ""
}

// sameJSON says that both texts stand for the same value.
func sameJSON(a, b json.RawMessage) bool {
	var first, second any
	return bytes.Equal(a, b) || json.Unmarshal(a, &first) == nil && json.Unmarshal(b, &second) == nil && reflect.DeepEqual(first, second)
}

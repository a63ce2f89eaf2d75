package sandbox

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
)

// Source is who tells the pod of a sandbox.
type Source string

// The sources. A cache can be out of date: only SourceRuntime is what is.
const (
	SourceNone    Source = ""
	SourceRuntime Source = "runtime"
	SourceCache   Source = "CNI cache"
)

// NodeSandbox is a network namespace of this node, and what is known of it.
type NodeSandbox struct {
	Sandbox
	// Source tells who knows the rest. All of it is empty with SourceNone.
	Source      Source
	ContainerID string
	Pod         attachment.Pod
	// Ready says that the runtime keeps the sandbox running. It is false if only a cache knows the sandbox.
	Ready bool
}

// Survey is what mounts, processes and the container runtime tell of this node's sandboxes at one moment.
type Survey struct {
	// Sandboxes are the network namespaces that List finds, and in the same order.
	Sandboxes []NodeSandbox
	// Incomplete says why the runtime did not tell of all its sandboxes. It is for people, as a warning. Whoever deletes
	// or frees because a sandbox is missing here must first see that Incomplete is nil.
	Incomplete error
}

// Complete says that the runtime told of all its sandboxes. Without that, nothing may be deleted or freed because it is not
// in the survey.
func (s Survey) Complete() bool { return s.Incomplete == nil }

// NewSurvey surveys the sandboxes of this node. If the runtime does not answer, or not in full, the survey says so, and the caches
// of libcni and Multus below cacheDir fill in what they can. The error says that /proc cannot be read at all.
func NewSurvey(ctx context.Context, runtime Runtime, cacheDir string) (Survey, error) {
	// First the runtime: what it starts meanwhile is then found in /proc, and is somebody whom nobody knows.
	reported, incomplete := runtime.Sandboxes(ctx)
	found, err := List()
	if err != nil {
		return Survey{}, err
	}
	s := Survey{Incomplete: incomplete}
	place := map[attachment.NamespaceFile]int{}
	for i, f := range found {
		s.Sandboxes = append(s.Sandboxes, NodeSandbox{Sandbox: f})
		place[f.NamespaceFile] = i
	}
	s.addRuntime(reported, place)
	if !s.Complete() {
		s.addCache(cacheDir, place)
	}
	return s, nil
}

// addRuntime notes what the runtime told.
func (s *Survey) addRuntime(reported []RuntimeSandbox, place map[attachment.NamespaceFile]int) {
	for _, t := range reported {
		id, exists := Identify(t.Netns)
		i, listed := place[id]
		if t.HostNetwork || !exists || !listed {
			continue
		}
		// The path of a sandbox that has stopped can lead to another one's namespace.
		if k := &s.Sandboxes[i]; k.Source == SourceNone || t.Ready && !k.Ready {
			k.Source, k.ContainerID, k.Pod, k.Ready = SourceRuntime, t.ContainerID, t.Pod, t.Ready
		}
	}
}

// addCache notes what the caches tell of the sandboxes that the runtime did not tell of.
func (s *Survey) addCache(dir string, place map[attachment.NamespaceFile]int) {
	entries, unreadable, err := cnicache.Read(dir)
	s.Incomplete = errors.Join(append([]error{s.Incomplete, err}, unreadable...)...)
	for _, e := range entries {
		id, exists := Identify(e.Netns)
		i, listed := place[id]
		if !exists || !listed || s.Sandboxes[i].Source != SourceNone {
			continue
		}
		k := &s.Sandboxes[i]
		k.Source, k.ContainerID, k.Pod = SourceCache, e.Attachment.ContainerID, e.Pod
	}
}

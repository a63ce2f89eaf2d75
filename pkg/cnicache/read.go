package cnicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// DefaultDir is the default directory of libcni and Multus.
const DefaultDir = "/var/lib/cni"

// Entry is an attachment as a cache has it. It can be out of date: a runtime that was killed leaves its
// entries.
type Entry struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	// Netns was the path of the sandbox's namespace when it was attached. It can lead to a stranger's by now.
	Netns string
	// MAC is that of the interface at the end of its ADD, empty if the cache does not tell it.
	MAC string
	// Config is the configuration of the plugin that made the interface, and Result the result of the ADD. They are nil if the cache does not
	// keep them.
	Config, Result json.RawMessage
	// Delegate says that the entry is of one of Multus's delegates. Multus itself is in the runtime's cache,
	// under the name of its own network, with the interface of its first delegate.
	Delegate bool
}

// Read returns the entries of the caches below dir: results (the runtime's), multus/results and
// multus/<container ID> (Multus's). The fields of an entry tell its attachment: no file's name is taken apart.
// unreadable has an error for each file that is torn, or is not a cache's. Without a cache there is no error.
func Read(dir string) (entries []Entry, unreadable []error, err error) {
	var r reader
	entries = r.results(filepath.Join(dir, "results"), false)
	delegateResults := r.results(filepath.Join(dir, "multus", "results"), true)
	delegates := r.delegates(filepath.Join(dir, "multus"))
	if r.err != nil {
		return nil, nil, r.err
	}
	return slices.Concat(delegateResults, entries, entriesWithoutResult(delegates, entries, delegateResults)), r.unreadable, nil
}

// reader reads caches. unreadable has an error for each file that it cannot read, and err is about the directories.
type reader struct {
	unreadable []error
	err        error
}

// eachFile calls read with each file in dir. Files that go meanwhile are left out.
func (r *reader) eachFile(dir string, read func(name string, b []byte) error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.err = errors.Join(r.err, fmt.Errorf("read CNI cache: %w", err))
		return
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, f.Name())
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = read(f.Name(), b)
		}
		if err != nil {
			r.unreadable = append(r.unreadable, fmt.Errorf("CNI cache %s: %w", path, err))
		}
	}
}

// cachedResult is cachedInfo of libcni/api.go.
type cachedResult struct {
	Kind        string          `json:"kind"`
	ContainerID string          `json:"containerId"`
	Config      []byte          `json:"config"`
	IfName      string          `json:"ifName"`
	NetworkName string          `json:"networkName"`
	Netns       string          `json:"netns"`
	CNIArgs     [][2]string     `json:"cniArgs"`
	Result      json.RawMessage `json:"result"`
}

// cacheKind is libcni's CNICacheV1.
const cacheKind = "cniCacheV1"

func (r *reader) results(dir string, delegate bool) (entries []Entry) {
	r.eachFile(dir, func(_ string, b []byte) error {
		e, err := parseResult(b)
		if err == nil {
			e.Delegate = delegate
			entries = append(entries, e)
		}
		return err
	})
	return entries
}

func parseResult(b []byte) (Entry, error) {
	var cached cachedResult
	if err := json.Unmarshal(b, &cached); err != nil {
		return Entry{}, err
	}
	if cached.Kind != cacheKind {
		return Entry{}, fmt.Errorf("its kind is %q, not %s", cached.Kind, cacheKind)
	}
	e := Entry{
		Attachment: attachment.Key{Network: cached.NetworkName, ContainerID: cached.ContainerID, IfName: cached.IfName},
		Netns:      cached.Netns,
		Result:     cached.Result,
	}
	for _, arg := range cached.CNIArgs {
		e.Pod.SetArg(arg[0], arg[1])
	}
	e.Config = pluginConfig(cached.Config)
	if err := e.Attachment.Validate(); err != nil {
		return Entry{}, err
	}
	e.completeFrom(cached.Result)
	return e, nil
}

// pluginConfig returns the configuration of the plugin that makes the interface, nil if b is no JSON: the runtime keeps the whole list, and the
// first of a list makes it.
func pluginConfig(b []byte) json.RawMessage {
	var list struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	if json.Unmarshal(b, &list) == nil && len(list.Plugins) > 0 {
		return list.Plugins[0]
	}
	if json.Valid(b) {
		return b
	}
	return nil
}

// completeFrom takes the MAC from the result, and the namespace if libcni did not keep it itself (before
// 1.3). A result from before CNI 0.3.0 has neither.
func (e *Entry) completeFrom(result json.RawMessage) {
	var r struct {
		Interfaces []struct{ Name, Mac, Sandbox string }
	}
	if json.Unmarshal(result, &r) != nil {
		return
	}
	for _, i := range r.Interfaces {
		if i.Name != e.Attachment.IfName || i.Sandbox == "" {
			continue
		}
		e.MAC = strings.ToLower(i.Mac)
		if e.Netns == "" {
			e.Netns = i.Sandbox
		}
		return
	}
}

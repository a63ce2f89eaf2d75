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
	"sync"

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

// Read is Cache.Read for who reads once.
func Read(dir string) (entries []Entry, unreadable []UnreadableError, err error) {
	return (&Cache{Dir: dir}).Read()
}

// UnreadableError is about a file that is torn, or is not a cache's.
type UnreadableError struct {
	Path string
	Err  error
}

func (e UnreadableError) Error() string { return fmt.Sprintf("CNI cache %s: %v", e.Path, e.Err) }

// MayName says that the file can be about the container: libcni (api.go, getCacheFilePath) and Multus (saveScratchNetConf) have the container ID
// in the names of their files.
func (e UnreadableError) MayName(containerID string) bool {
	return strings.Contains(filepath.Base(e.Path), containerID)
}

// Cache reads the caches below Dir again and again. It does not parse a file again that nobody has written since.
type Cache struct {
	Dir string

	mu    sync.Mutex
	files map[string]cachedFile
}

// cachedFile is a file as it was read: info is from before that, content is an Entry or delegates.
type cachedFile struct {
	info    fs.FileInfo
	content any
	err     error
}

// Read returns the entries of the caches: results (the runtime's), multus/results and multus/<container ID>
// (Multus's). The fields of an entry tell its attachment: no file's name is taken apart. unreadable has an error
// for each file that is torn, or is not a cache's. Without a cache there is no error. Several goroutines may call it.
func (c *Cache) Read() (entries []Entry, unreadable []UnreadableError, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := reader{earlier: c.files, files: map[string]cachedFile{}}
	entries = r.results(filepath.Join(c.Dir, "results"), false)
	delegateResults := r.results(filepath.Join(c.Dir, "multus", "results"), true)
	delegates := r.delegates(filepath.Join(c.Dir, "multus"))
	if r.err != nil {
		return nil, nil, r.err
	}
	c.files = r.files
	return slices.Concat(delegateResults, entries, entriesWithoutResult(delegates, entries, delegateResults)), r.unreadable, nil
}

// reader reads caches. earlier are the files as they were read before, and files those of this reading. unreadable has an error for each file
// that it cannot read, and err is about the directories.
type reader struct {
	earlier, files map[string]cachedFile
	unreadable     []UnreadableError
	err            error
}

// readFile returns what parse makes of the file.
func (r *reader) readFile(path string, parse func(b []byte) (any, error)) (f cachedFile) {
	info, err := os.Lstat(path)
	if err != nil {
		return cachedFile{err: err}
	}
	earlier, exists := r.earlier[path]
	if exists && os.SameFile(info, earlier.info) && info.Size() == earlier.info.Size() && info.ModTime().Equal(earlier.info.ModTime()) {
		return earlier
	}
	b, err := os.ReadFile(path)
	f = cachedFile{info: info, err: err}
	if err == nil {
		f.content, f.err = parse(b)
	}
	return f
}

// eachFile calls use with what parse makes of each file in dir. Files that go meanwhile are left out.
func (r *reader) eachFile(dir string, parse func(name string, b []byte) (any, error), use func(content any)) {
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
		file := r.readFile(path, func(b []byte) (any, error) { return parse(f.Name(), b) })
		if errors.Is(file.err, fs.ErrNotExist) {
			continue
		}
		if file.err == nil {
			use(file.content)
		} else {
			r.unreadable = append(r.unreadable, UnreadableError{path, file.err})
		}
		if file.info != nil {
			r.files[path] = file
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
	r.eachFile(dir, func(_ string, b []byte) (any, error) { return parseResult(b) }, func(content any) {
		e := content.(Entry)
		e.Delegate = delegate
		entries = append(entries, e)
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

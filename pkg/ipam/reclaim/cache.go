package reclaim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
)

// cache is what the CNI caches have.
type cache struct {
	dir string
	// entries are by container ID. A container that only Multus knows may have none.
	entries map[string][]cnicache.Entry
	// incomplete is why there may be more entries than these, empty if all are known.
	incomplete string
	// missing says that there is no cache at all.
	missing bool
	// problems say what cannot be read, and why.
	problems []string
}

// readCache reads the caches below dir. A runtime that has attached anything has a cache. If dir has none, the
// cache is elsewhere.
func readCache(dir string) (cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cache{}, err
	}
	c := cache{dir: dir, entries: map[string][]cnicache.Entry{}}
	results := filepath.Join(dir, "results")
	if _, err := os.Stat(results); err != nil {
		c.incomplete = fmt.Sprintf("there is no CNI cache in %s (%s): --cni-cache names the directory that has it", dir, err)
		c.problems, c.missing = []string{c.incomplete}, true
		return c, nil
	}
	entries, unreadable, err := cnicache.Read(dir)
	delegating, listErr := cnicache.MultusContainerIDs(dir)
	if err := errors.Join(err, listErr); err != nil {
		c.incomplete = err.Error()
		c.problems = []string{c.incomplete}
		return c, nil
	}
	for _, e := range entries {
		id := e.Attachment.ContainerID
		c.entries[id] = append(c.entries[id], e)
	}
	for _, id := range delegating {
		if !c.has(id) {
			c.entries[id] = nil
		}
	}
	for _, err := range unreadable {
		c.problems = append(c.problems, err.Error())
	}
	switch len(unreadable) {
	case 0:
	case 1:
		c.incomplete = c.problems[0]
	default:
		c.incomplete = fmt.Sprintf("%s, and %d more files cannot be read", c.problems[0], len(unreadable)-1)
	}
	return c, nil
}

// has says whether the caches have the container.
func (c cache) has(containerID string) bool {
	_, found := c.entries[containerID]
	return found
}

// Entry returns what the CNI caches have of the attachment. An entry that names the pod goes first. An entry of
// another network only shows that the container is known.
func (n *Node) Entry(key attachment.Key) (cnicache.Entry, bool) {
	entries := slices.DeleteFunc(slices.Clone(n.cache.entries[key.ContainerID]), func(e cnicache.Entry) bool { return e.Attachment != key })
	if len(entries) == 0 {
		return cnicache.Entry{}, false
	}
	if i := slices.IndexFunc(entries, func(e cnicache.Entry) bool { return e.Pod.Name != "" }); i >= 0 {
		return entries[i], true
	}
	return entries[0], true
}

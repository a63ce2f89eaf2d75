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
	// blind is why there may be more entries than these, empty if all are known.
	blind string
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
		c.blind = fmt.Sprintf("there is no CNI cache in %s (%s): --cni-cache names the directory that has it", dir, err)
		c.problems, c.missing = []string{c.blind}, true
		return c, nil
	}
	all, unreadable, err := cnicache.Read(dir)
	delegating, listErr := cnicache.Delegating(dir)
	if err := errors.Join(err, listErr); err != nil {
		c.blind = err.Error()
		c.problems = []string{c.blind}
		return c, nil
	}
	for _, e := range all {
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
		c.blind = c.problems[0]
	default:
		c.blind = fmt.Sprintf("%s, and %d more files cannot be read", c.problems[0], len(unreadable)-1)
	}
	return c, nil
}

// has says whether the caches have the container.
func (c cache) has(containerID string) bool {
	_, has := c.entries[containerID]
	return has
}

// Entry returns what the CNI caches have of the attachment. An entry that names the pod goes first. An entry of
// another network only shows that the container is known.
func (n *Node) Entry(of attachment.Key) (cnicache.Entry, bool) {
	all := slices.DeleteFunc(slices.Clone(n.cache.entries[of.ContainerID]), func(e cnicache.Entry) bool { return e.Attachment != of })
	if len(all) == 0 {
		return cnicache.Entry{}, false
	}
	if i := slices.IndexFunc(all, func(e cnicache.Entry) bool { return e.Pod.Name != "" }); i >= 0 {
		return all[i], true
	}
	return all[0], true
}

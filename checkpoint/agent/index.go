package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/wait"
)

// index keeps the records of the store in memory, and follows the store by inotify(7).
type index struct {
	store *checkpoint.Store
	// watcher is nil while inotify(7) has no instance left.
	watcher *fsnotify.Watcher
	// sandboxes are those with checkpoints, by their container IDs.
	sandboxes map[string]indexedSandbox
	// root is the store's directory that is watched. unwatched says that the directory of some sandbox is not watched.
	root      fs.FileInfo
	unwatched bool
	// onRead is called after each read of a sandbox, with what was there before and what is there now.
	onRead func(before, after indexedSandbox)
	// changed gets a value when there is something for take.
	changed chan struct{}

	mu sync.Mutex
	// dirty are the sandboxes that changed. allDirty says that any sandbox may have changed.
	dirty    map[string]bool
	allDirty bool
}

// indexedSandbox is what the store has of a sandbox. id is its container ID. unreadable is the number of checkpoints that cannot be read. moving says that a
// move is not done.
type indexedSandbox struct {
	id         string
	records    []checkpoint.Record
	unreadable int
	moving     bool
}

// newIndex returns an index that has read nothing yet. It creates the store's directory. The caller closes the index.
func newIndex(store *checkpoint.Store, onRead func(before, after indexedSandbox)) (*index, error) {
	if err := os.MkdirAll(store.Dir(), 0o700); err != nil {
		return nil, fmt.Errorf("watch the checkpoints: %w", err)
	}
	return &index{
		store: store, onRead: onRead, sandboxes: map[string]indexedSandbox{},
		changed: make(chan struct{}, 1), dirty: map[string]bool{}, allDirty: true,
	}, nil
}

// watchRoot watches the store's directory, and those of its notes. It makes what is missing.
func (x *index) watchRoot() error {
	restoring, moving := filepath.Dir(x.store.IndicesPath()), x.store.MovesPath("")
	err := cmp.Or(os.MkdirAll(restoring, 0o700), os.MkdirAll(moving, 0o700)) // The store's directory is above both.
	if err == nil {
		x.root, err = os.Stat(x.store.Dir())
	}
	if err == nil && x.watcher == nil {
		if err = x.newWatcher(); err != nil {
			return err
		}
	}
	if err == nil {
		err = errors.Join(x.watch(x.store.Dir()), x.watch(restoring), x.watch(moving))
	}
	if err != nil {
		x.root = nil
		return fmt.Errorf("watch the checkpoints: %w", err)
	}
	return nil
}

// newWatcher begins to listen. Other programs of the same user may have taken all instances of inotify(7). The node
// needs the agent even then.
func (x *index) newWatcher() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return explainLimit(fmt.Errorf("watch the checkpoints: %w", err), syscall.EMFILE, "fs.inotify.max_user_instances")
	}
	x.watcher = watcher
	go x.listen(watcher)
	return nil
}

// watch watches the directory. It does nothing without a watcher: newWatcher has already reported why there is none.
func (x *index) watch(dir string) error {
	if x.watcher == nil {
		return nil
	}
	return explainLimit(x.watcher.Add(dir), syscall.ENOSPC, "fs.inotify.max_user_watches")
}

// explainLimit adds the sysctl to an error that means that its limit is reached.
func explainLimit(err error, means error, sysctl string) error {
	if !errors.Is(err, means) {
		return err
	}
	return fmt.Errorf("%w: raise the sysctl %s", err, sysctl)
}

// checkWatches marks all sandboxes if something is not watched. inotify(7) may have had no room for a directory. Or another
// directory may be in the place of the store's: no event tells about a mount.
func (x *index) checkWatches() {
	info, err := os.Stat(x.store.Dir())
	if x.unwatched || err != nil || x.root == nil || !os.SameFile(info, x.root) {
		x.root = nil
		x.markAll()
	}
}

func (x *index) close() {
	if x.watcher != nil {
		_ = x.watcher.Close()
	}
}

// listen marks each sandbox that changes. It ends when the watcher is closed.
func (x *index) listen(watcher *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-watcher.Events:
			if !ok {
				return
			}
			switch id, name := x.containerIDOf(e.Name), filepath.Clean(e.Name); {
			case name == x.store.IndicesPath(), name == filepath.Dir(x.store.IndicesPath()), name == x.store.MovesPath(""):
				x.markAll() // The indices of any record can be others now, or the directory is another one.
			case name == filepath.Clean(x.store.Dir()) && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
				x.markAll()
			case id != "":
				x.mark(id)
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
			x.markAll() // Events are lost.
		}
	}
}

// containerIDOf returns the container ID of the sandbox whose checkpoint, note of a move or directory has the path. It
// returns "" for any other path.
func (x *index) containerIDOf(path string) string {
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); dir != filepath.Clean(x.store.Dir()) && dir != x.store.MovesPath("") {
		if strings.HasPrefix(name, ".") { // This is the lock, or a file that is still being written.
			return ""
		}
		name = filepath.Base(dir)
	}
	if attachment.ValidateName(name) != nil {
		return ""
	}
	return name
}

// mark marks a sandbox.
func (x *index) mark(id string) {
	x.mu.Lock()
	x.dirty[id] = true
	x.mu.Unlock()
	wait.Wake(x.changed)
}

// markAll marks all sandboxes.
func (x *index) markAll() {
	x.mu.Lock()
	x.allDirty = true
	x.mu.Unlock()
	wait.Wake(x.changed)
}

// readChanges reads what has changed, everything at first. After an error it has read everything, too, but not all checkpoints are watched.
func (x *index) readChanges() error {
	x.mu.Lock()
	dirty, allDirty := x.dirty, x.allDirty
	x.dirty, x.allDirty = map[string]bool{}, false
	x.mu.Unlock()
	var failed error
	if allDirty {
		failed = x.watchRoot() // Unwatched directories are read all the same.
		x.unwatched = x.watcher == nil
		entries, err := os.ReadDir(x.store.Dir())
		if err != nil {
			x.markAll()
			return errors.Join(failed, fmt.Errorf("list checkpoints: %w", err))
		}
		for id := range x.sandboxes {
			dirty[id] = true
		}
		for _, e := range entries {
			if e.IsDir() && attachment.ValidateName(e.Name()) == nil {
				dirty[e.Name()] = true
			}
		}
	}
	return errors.Join(failed, x.read(slices.Sorted(maps.Keys(dirty))...))
}

// read reads the records of the sandboxes. It first watches the directory of each, so that it misses no change.
func (x *index) read(ids ...string) error {
	read, errs := make([]indexedSandbox, len(ids)), make([]error, len(ids))
	inparallel.Do(runtime.GOMAXPROCS(0), len(ids), func(i int) { read[i], errs[i] = x.readSandbox(ids[i]) })
	for i, id := range ids {
		before := x.sandboxes[id]
		if x.sandboxes[id] = read[i]; len(read[i].records)+read[i].unreadable == 0 && !read[i].moving {
			delete(x.sandboxes, id)
		}
		x.unwatched = x.unwatched || x.watcher == nil || errs[i] != nil
		x.onRead(before, read[i])
	}
	return cmp.Or(errs...) // The others fail for the same reason.
}

func (x *index) readSandbox(id string) (indexedSandbox, error) {
	err := x.watch(filepath.Join(x.store.Dir(), id))
	if errors.Is(err, fs.ErrNotExist) || !x.store.InUse(id) {
		return indexedSandbox{id: id}, nil
	}
	if moves := x.watch(x.store.MovesPath(id)); !errors.Is(moves, fs.ErrNotExist) {
		err = errors.Join(err, moves)
	}
	if err != nil {
		err = fmt.Errorf("watch the checkpoints of %s: %w", id, err)
	}
	records, unreadable := x.store.ListSandbox(id, x.sandboxes[id].records...)
	return indexedSandbox{id: id, records: records, unreadable: len(unreadable), moving: x.store.HasUnfinishedMove(id)}, err
}

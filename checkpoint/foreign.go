package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Foreign returns the paths in the store's directory that no relink has made. A directory that is missing has none. Whoever
// deletes the whole directory asks first: the configuration may name a directory that others use, too.
func (s *Store) Foreign() (all []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case isOwn(e.Name()):
		case strings.HasPrefix(e.Name(), ".") || !e.IsDir():
			all = append(all, path)
		default:
			within, err := os.ReadDir(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Its pod may end meanwhile.
				return nil, fmt.Errorf("list checkpoints: %w", err)
			}
			for _, file := range within {
				// A dot: the sandbox's lock, and files that are not written to their end.
				if !file.Type().IsRegular() || !strings.HasSuffix(file.Name(), suffix) && !strings.HasPrefix(file.Name(), ".") {
					all = append(all, filepath.Join(path, file.Name()))
				}
			}
		}
	}
	return all, nil
}

// isOwn says whether the name is of something that relink keeps beside the sandboxes' directories.
func isOwn(name string) bool {
	own := []string{".agent", ".detaching", ".guard", ".host.lock", ".moving", ".parents.lock", ".restoring"}
	return slices.Contains(own, name) || strings.HasPrefix(name, ".usable-")
}

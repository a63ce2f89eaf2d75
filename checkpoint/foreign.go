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

// UnexpectedPaths returns the paths in the store's directory that no relink has made. A directory that is missing has none. Whoever
// deletes the whole directory asks first: the configuration may name a directory that others use, too.
func (s *Store) UnexpectedPaths() (paths []string, err error) {
	entries, err := listDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case isReserved(e.Name()):
		case strings.HasPrefix(e.Name(), ".") || !e.IsDir():
			paths = append(paths, path)
		default:
			files, err := listDir(path)
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				// A dot: the sandbox's lock, and files that are not written to their end.
				if !file.Type().IsRegular() || !strings.HasSuffix(file.Name(), suffix) && !strings.HasPrefix(file.Name(), ".") {
					paths = append(paths, filepath.Join(path, file.Name()))
				}
			}
		}
	}
	return paths, nil
}

// listDir returns what is in the directory: nothing if it is missing, because a pod can end meanwhile.
func listDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	return entries, nil
}

// The names of what relink keeps beside the sandboxes' directories and the locks. The dot marks each as no sandbox's.
// docs/state-format.md has them all.
var (
	agentDir       = reserve(".agent")
	detachingDir   = reserve(".detaching")
	masqueradeFile = reserve(".masquerade")
	movingDir      = reserve(".moving")
	restoringDir   = reserve(".restoring")
)

var reservedNames []string

func reserve(name string) string {
	reservedNames = append(reservedNames, name)
	return name
}

// probePrefix begins the name of a file that CheckWritable tries to write.
const probePrefix = ".usable-"

// isReserved says whether the name is of something that relink keeps beside the sandboxes' directories.
func isReserved(name string) bool {
	return slices.Contains(reservedNames, name) || strings.HasPrefix(name, probePrefix)
}

// AgentDir is the directory of the agent's notes, and of the sightings of gc.
func (s *Store) AgentDir() string { return filepath.Join(s.dir, agentDir) }

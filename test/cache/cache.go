package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Dir returns the directory of one part of relink's cache, which may not exist yet. It is below RELINK_CACHE_DIR, or else
// below relink in the user's cache.
func Dir(part string) (string, error) {
	dir := os.Getenv("RELINK_CACHE_DIR")
	if dir == "" {
		user, err := os.UserCacheDir() // $XDG_CACHE_HOME, else ~/.cache
		if err != nil {
			return "", fmt.Errorf("no place for the cache, set RELINK_CACHE_DIR: %w", err)
		}
		dir = filepath.Join(user, "relink")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache %s: %w", dir, err)
	}
	// The guest reaches the cache through the host's root, where links do not lead out of it.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return filepath.Join(dir, part), nil
}

// Once makes path, unless it is there: it calls build with a temporary path beside it. One process builds, and the
// others wait for it. path appears complete or not at all.
func Once(path string, build func(partial string) error) error {
	if Exists(path) {
		return nil
	}
	unlock, err := lockFile(filepath.Join(filepath.Dir(path), "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if Exists(path) {
		return nil
	}
	partial := path + ".partial" // left behind by a killed process, if it is there: the lock is ours
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("clearing the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(partial) }() // the next to build clears it, too
	if err := build(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	return nil
}

// Exists reports whether there is something at path.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lockFile takes an exclusive lock, waiting for it, and returns what gives it back.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

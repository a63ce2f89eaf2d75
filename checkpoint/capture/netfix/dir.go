package netfix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Candidate is one file of a directory.
type Candidate struct {
	Path string
	File
	// Err is why the file cannot be used. Then File is empty.
	Err error
	// ModTime is when the file was written.
	ModTime time.Time
}

// ReadDir reads the files of the directory. It skips names that begin with a dot: they belong to an
// editor or a copying program. Everything else that is no file of the tool gets an Err.
func ReadDir(dir string) ([]Candidate, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of i40e_net_fix: %w", err)
	}
	var found []Candidate
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		c := Candidate{Path: filepath.Join(dir, entry.Name())}
		if entry.Type().IsRegular() {
			c.File, c.ModTime, c.Err = read(c.Path)
		} else {
			c.Err = errors.New("no regular file, and so no checkpoint of i40e_net_fix: move it away")
		}
		found = append(found, c)
	}
	return found, nil
}

// maxFileSize is far above what the tool writes.
const maxFileSize = 1 << 20

func read(path string) (File, time.Time, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, time.Time{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return File{}, time.Time{}, err
	}
	b, err := io.ReadAll(io.LimitReader(file, maxFileSize)) // The rest is missing in a longer file: so it is torn.
	if err != nil {
		return File{}, time.Time{}, err
	}
	parsed, err := Parse(b)
	if err == nil {
		err = parsed.checkName(filepath.Base(path))
	}
	if err != nil {
		return File{}, time.Time{}, err
	}
	return parsed, info.ModTime(), nil
}

package install

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// FileAction is what is done about a file.
type FileAction string

// The actions. Refuse stops an installation before it changes anything.
const (
	Create  FileAction = "create"
	Replace FileAction = "replace"
	Keep    FileAction = "keep"
	Remove  FileAction = "remove"
	Leave   FileAction = "leave"
	Refuse  FileAction = "refuse"
)

// FileStep is one file, what is done about it, and why.
type FileStep struct {
	File
	Action FileAction
	Reason string
}

// decide decides about one file. One without a checksum is not to be there. installed are the checksums of the versions that relink has
// installed.
func decide(f File, installed []string, current fileState, force bool) (FileAction, string) {
	switch {
	case f.sum == "" && !current.exists:
		return Keep, "it is gone already"
	case f.sum == "" && slices.Contains(installed, current.sum):
		return Remove, "relink install has put it there"
	case f.sum == "":
		return Leave, "it was changed since relink install put it there"
	case !current.exists:
		return Create, "it is not there"
	case current.sum == "":
		return Refuse, "it is no regular file: move it away"
	case current.sum == f.sum && current.mode == f.Mode:
		return Keep, "it is the same"
	case current.sum == f.sum:
		return Replace, fmt.Sprintf("its mode is %04o, not %04o", current.mode, f.Mode)
	case slices.Contains(installed, current.sum):
		return Replace, "it is of another version"
	case force:
		return Replace, "relink install has not put it there, and --force replaces it"
	case installed != nil:
		return Refuse, "it was changed since relink install put it there: move it away, or use --force to replace it"
	}
	return Refuse, "relink install has not put it there: move it away, or use --force to replace it"
}

// inRoot returns the path below another root.
func inRoot(root, path string) string { return filepath.Join("/", root, path) }

// programMode, textMode and dirMode are the modes of installed files and directories.
const (
	programMode fs.FileMode = 0o755
	dirMode     fs.FileMode = 0o755
	textMode    fs.FileMode = 0o644
)

package install

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Action is what is done about a file.
type Action string

// The actions. Refuse stops an installation before it changes anything.
const (
	Create  Action = "create"
	Replace Action = "replace"
	Keep    Action = "keep"
	Remove  Action = "remove"
	Leave   Action = "leave"
	Refuse  Action = "refuse"
)

// Step is one file, what is done about it, and why.
type Step struct {
	Path   string `json:"path"`
	Action Action `json:"action"`
	Reason string `json:"reason"`

	file File
	sum  string
}

// wanted is a file to install with its checksum.
type wanted struct {
	File
	sum string
}

// planInstall decides about each file to install, and about each file that an earlier version has left. there says what
// is at each path.
func planInstall(files []wanted, was manifest, there map[string]present, force bool) []Step {
	var steps []Step
	for _, f := range files {
		action, reason := decideInstall(f, was.sums(f.Path), there[f.Path], force)
		steps = append(steps, Step{f.Path, action, reason, f.File, f.sum})
	}
	for _, e := range was.Files {
		if slices.ContainsFunc(files, func(f wanted) bool { return f.Path == e.Path }) {
			continue
		}
		step := decideRemove(e, there[e.Path])
		if step.Action == Remove {
			step.Reason = "this version does not have it"
		}
		steps = append(steps, step)
	}
	return steps
}

// decideInstall decides about one file. ours are the checksums of the versions that relink has installed.
func decideInstall(f wanted, ours []string, now present, force bool) (Action, string) {
	switch {
	case !now.there:
		return Create, "it is not there"
	case now.sum == "":
		return Refuse, "it is no regular file: move it away"
	case now.sum == f.sum && now.mode == f.Mode:
		return Keep, "it is the same"
	case now.sum == f.sum:
		return Replace, fmt.Sprintf("its mode is %04o, not %04o", now.mode, f.Mode)
	case slices.Contains(ours, now.sum):
		return Replace, "it is of another version"
	case force:
		return Replace, "relink install has not put it there, and --force replaces it"
	case ours != nil:
		return Refuse, "it was changed since relink install put it there: move it away, or use --force to replace it"
	}
	return Refuse, "relink install has not put it there: move it away, or use --force to replace it"
}

// planUninstall decides about each file that was installed.
func planUninstall(was manifest, there map[string]present) []Step {
	var steps []Step
	for _, e := range was.Files {
		steps = append(steps, decideRemove(e, there[e.Path]))
	}
	return steps
}

func decideRemove(e entry, now present) Step {
	switch {
	case !now.there:
		return Step{Path: e.Path, Action: Keep, Reason: "it is gone already"}
	case slices.Contains(e.SHA256, now.sum):
		return Step{Path: e.Path, Action: Remove, Reason: "relink install has put it there"}
	}
	return Step{Path: e.Path, Action: Leave, Reason: "it was changed since relink install put it there"}
}

// under returns the path below another root.
func under(root, path string) string { return filepath.Join("/", root, path) }

// programMode, textMode and dirMode are the modes of installed files and directories.
const (
	programMode fs.FileMode = 0o755
	dirMode     fs.FileMode = 0o755
	textMode    fs.FileMode = 0o644
)

package install

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// manifestPath is where the manifest is, without Options.Root.
const manifestPath = "/var/lib/relink/installed.json"

// manifestVersion is the version of the manifest's format.
const manifestVersion = 1

// ErrNotInstalled means that there is no manifest: relink install has put nothing here.
var ErrNotInstalled = errors.New("relink install has put nothing here")

// manifest is what relink install has put on the node.
type manifest struct {
	Version int `json:"version"`
	// Relink is the version of the last installation.
	Relink string  `json:"relink"`
	Files  []entry `json:"files"`
	// Restart says that the agent was not started after the last change of files: it may be an earlier version.
	Restart bool `json:"restart,omitempty"`
}

// entry is one file of the manifest. A killed installation leaves two checksums: the file is the old or the new one,
// and both are relink's.
type entry struct {
	Path   string   `json:"path"`
	SHA256 []string `json:"sha256"`
}

// sums returns the checksums of the versions of this file that relink has installed, or nil.
func (m manifest) sums(path string) []string {
	for _, e := range m.Files {
		if e.Path == path {
			return e.SHA256
		}
	}
	return nil
}

// loadManifest returns an empty manifest if there is none.
func loadManifest(root string) (manifest, error) {
	path := inRoot(root, manifestPath)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return manifest{}, nil
	}
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return manifest{}, fmt.Errorf("%s is damaged: %w; delete it, and run relink install again", path, err)
	}
	if m.Version != manifestVersion {
		return manifest{}, fmt.Errorf("%s has version %d, and this relink knows only %d: use the relink that wrote it, or a newer one",
			path, m.Version, manifestVersion)
	}
	return m, nil
}

// save writes the manifest, its files in order.
func (m manifest) save(root string) error {
	m.Version = manifestVersion
	slices.SortFunc(m.Files, func(a, b entry) int { return cmp.Compare(a.Path, b.Path) })
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return File{Content: append(b, '\n'), Mode: 0o644}.write(inRoot(root, manifestPath))
}

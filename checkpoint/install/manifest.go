package install

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/relink-cni/relink/pkg/statefile"
)

// manifestPath is where the manifest is, without Options.Root.
const manifestPath = "/var/lib/relink/installed.json"

// manifestVersion is the version of the manifest's format.
const manifestVersion = 1

// ErrNotInstalled means that there is no manifest: relink install has put nothing here.
var ErrNotInstalled = errors.New("relink install has put nothing here")

// manifest is what relink install has put on the node.
type manifest struct {
	Version int      `json:"version"`
	Files   []string `json:"files"`
	// Unfinished says that the agent was not started after the last change of files: it may be an earlier version.
	Unfinished bool `json:"unfinished,omitempty"`
}

// loadManifest returns ErrNotInstalled if there is none.
func loadManifest(root string) (m manifest, err error) {
	path := inRoot(root, manifestPath)
	err = statefile.Load(path, &m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: there is no %s", ErrNotInstalled, path)
	case err != nil:
		err = fmt.Errorf("%w; delete it, and run relink install again", err)
	case m.Version != manifestVersion:
		err = fmt.Errorf("%s has version %d, and this relink knows only %d: use the relink that wrote it, or a newer one", path, m.Version, manifestVersion)
	}
	return m, err
}

// saveManifest notes the files of the plan: all of them while it is carried out, and those that stay afterwards. Of none there is no manifest.
func (p *Plan) saveManifest(applying, unfinished bool) error {
	m := manifest{Version: manifestVersion, Unfinished: unfinished}
	path := inRoot(p.opts.Root, manifestPath)
	for _, s := range p.Steps {
		if applying || s.Action != Remove {
			m.Files = append(m.Files, s.Path)
		}
	}
	switch {
	case p.opts.PluginsOnly:
		return nil
	case len(m.Files) == 0:
		return statefile.Remove(path)
	}
	return statefile.Save(path, m)
}

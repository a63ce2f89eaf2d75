package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/relink-cni/relink/pkg/statefile"
)

// Options say what to install and where.
type Options struct {
	// SourceDir is the directory of the programs to install, and of man/ with the manual pages.
	SourceDir string
	// Root is the directory where the node's file system is mounted. It is empty for this node.
	Root string
	// CNIBin is the directory of the plugins, without Root.
	CNIBin string
	// PluginsOnly installs the plugins and nothing else. No manifest is written.
	PluginsOnly bool
	// Completions are the files that complete relink's command line, by their shells: bash, zsh and fish.
	Completions map[string][]byte
	// Force also installs beside a package.
	Force bool
}

// FileAction is what is done about a file.
type FileAction string

// The actions.
const (
	Create  FileAction = "create"
	Replace FileAction = "replace"
	Keep    FileAction = "keep"
	Remove  FileAction = "remove"
)

// FileStep is one file, and what is done about it.
type FileStep struct {
	File
	Action FileAction
}

// Plan is what Apply will do. It depends on the files that were there when it was made.
type Plan struct {
	Steps []FileStep

	opts     Options
	previous manifest
}

// Plan decides what to install. It changes nothing.
func (o Options) Plan() (*Plan, error) {
	list, err := files(o)
	if err != nil {
		return nil, err
	}
	var previous manifest
	if !o.PluginsOnly {
		err = o.checkPackage()
		if err == nil {
			previous, err = loadManifest(o.Root)
		}
		if err != nil && !errors.Is(err, ErrNotInstalled) {
			return nil, err
		}
	}
	return o.newPlan(list, previous)
}

// PlanUninstall decides what to remove. It changes nothing. The error matches ErrNotInstalled if there is no manifest.
func (o Options) PlanUninstall() (*Plan, error) {
	previous, err := loadManifest(o.Root)
	if err != nil {
		return nil, err
	}
	return o.newPlan(nil, previous)
}

// packagedAgent is where a package of a distribution puts the agent.
const packagedAgent = "/usr/sbin/relink-agent"

// checkPackage returns an error if a package has put relink on the node. The unit below /usr/local would hide the
// package's unit. Then no upgrade of the package would reach the agent.
func (o Options) checkPackage() error {
	path := inRoot(o.Root, packagedAgent)
	if _, err := os.Lstat(path); err != nil || o.Force {
		return nil //nolint:nilerr // No package has installed relink.
	}
	return fmt.Errorf("nothing is installed: %s is there: a package has put relink on this node: upgrade that package, or remove it first (apt-get remove relink)", path)
}

// newPlan decides about each file to install. What an earlier installation has put there besides is removed.
func (o Options) newPlan(files []File, previous manifest) (*Plan, error) {
	p := &Plan{opts: o, previous: previous}
	for _, f := range files {
		action, err := f.actionAt(inRoot(o.Root, f.Path))
		if err != nil {
			return nil, err
		}
		p.Steps = append(p.Steps, FileStep{f, action})
	}
	for _, path := range previous.Files {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Path == path }) {
			p.Steps = append(p.Steps, FileStep{File{Path: path}, Remove})
		}
	}
	return p, nil
}

// actionAt says what is to be done to have the file at the path.
func (f File) actionAt(path string) (FileAction, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Create, nil
	}
	if err != nil || info.Mode() != f.Mode {
		return Replace, err
	}
	present, err := os.ReadFile(path)
	content, contentErr := f.content()
	if bytes.Equal(present, content) {
		return Keep, errors.Join(err, contentErr)
	}
	return Replace, errors.Join(err, contentErr)
}

// inRoot returns the path below another root.
func inRoot(root, path string) string { return filepath.Join("/", root, path) }

// Changes says whether the plan changes any file.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Steps, func(s FileStep) bool { return s.Action != Keep })
}

// NeedsRestart says whether a running agent may be of an earlier version: after this plan, or because an installation
// was killed before it restarted the agent.
func (p *Plan) NeedsRestart() bool { return p.Changes() || p.previous.Unfinished }

// Apply carries out the plan. After an installation, the caller starts the agent and calls SaveStarted. After an error, some files are
// changed: the next run goes on from there.
func (p *Plan) Apply() error {
	// The manifest knows all files whenever a kill comes.
	if err := p.saveManifest(true, true); err != nil {
		return err
	}
	for _, s := range p.Steps {
		path := inRoot(p.opts.Root, s.Path)
		var err error
		switch s.Action {
		case Create, Replace:
			err = s.write(path)
		case Remove:
			err = statefile.Remove(path)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.Action, path, err)
		}
	}
	return p.saveManifest(false, p.NeedsRestart())
}

// SaveStarted notes that the agent runs the version of this plan.
func (p *Plan) SaveStarted() error { return p.saveManifest(false, false) }

// write writes the file to the path: whole or not at all. The file is on the disk when write returns. A running program
// keeps the file that it was started from.
func (f File) write(path string) error {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	// The temporary name starts with a dot, so that a runtime does not take the file for a plugin.
	return statefile.Write(path, content, renameio.WithStaticPermissions(f.Mode))
}

// dirMode is the mode of new directories.
const dirMode fs.FileMode = 0o755

// makeDir makes a directory and the missing directories above it. It ignores the umask, because other programs put
// files there too, and all users read them.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if up := filepath.Dir(dir); up != dir {
		if err := makeDir(up); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) { // Another process was faster. Or it is not a directory: then making the file fails.
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, dirMode)
}

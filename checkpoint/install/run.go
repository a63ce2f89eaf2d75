package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/cniplugin"
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
	Completions []Completion
	// Force also replaces files that relink install has not put there.
	Force bool
}

// ErrRefused says that a file is in the way. Nothing was changed.
var ErrRefused = errors.New("nothing is installed")

// Plan is what Install or Uninstall will do. It depends on the files that were there when it was made.
type Plan struct {
	Steps []FileStep

	opts     Options
	previous manifest
}

// Changes says whether the plan changes any file.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Steps, func(s FileStep) bool { return s.Action != Keep && s.Action != Leave })
}

// NeedsRestart says whether a running agent may be of an earlier version: after this plan, or because an installation
// was killed before it restarted the agent.
func (p *Plan) NeedsRestart() bool { return p.Changes() || p.previous.Restart }

// SaveStarted notes that the agent runs the version of this plan.
func (p *Plan) SaveStarted() error {
	m := p.manifest(false)
	m.Restart = false
	return m.save(p.opts.Root)
}

// Removes says whether the plan removes a file of this name.
func (p *Plan) Removes(name string) bool {
	return slices.ContainsFunc(p.Steps, func(s FileStep) bool { return s.Action == Remove && filepath.Base(s.Path) == name })
}

// Plan decides what to install. It changes nothing.
func (o Options) Plan() (*Plan, error) {
	list, err := files(o)
	if err != nil {
		return nil, err
	}
	p := &Plan{opts: o}
	if !o.PluginsOnly {
		if err := o.checkPackage(); err != nil {
			return nil, err
		}
		if p.previous, err = loadManifest(o.Root); err != nil {
			return nil, err
		}
	}
	for i, f := range list {
		content, err := f.content()
		if err != nil {
			return nil, err
		}
		list[i].sum = checksum(content)
	}
	// Without a manifest, nobody knows who installed a plugin. But its name begins with relink, so it is relink's.
	return p, p.decide(list, o.Force || o.PluginsOnly)
}

// decide decides about each file to install, and about each file that an earlier version has left, by what is at its path.
func (p *Plan) decide(files []File, force bool) error {
	for _, e := range p.previous.Files {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Path == e.Path }) {
			files = append(files, File{Path: e.Path})
		}
	}
	for _, f := range files {
		current, err := readState(inRoot(p.opts.Root, f.Path))
		if err != nil {
			return err
		}
		action, reason := decide(f, p.previous.sums(f.Path), current, force)
		p.Steps = append(p.Steps, FileStep{f, action, reason})
	}
	return nil
}

// packagedAgent is where a package of a distribution puts the agent.
const packagedAgent = "/usr/sbin/relink-agent"

// checkPackage returns ErrRefused if a package has put relink on the node. The unit below /usr/local would hide the
// package's unit. Then no upgrade of the package would reach the agent.
func (o Options) checkPackage() error {
	path := inRoot(o.Root, packagedAgent)
	if _, err := os.Lstat(path); err != nil || o.Force {
		return nil //nolint:nilerr // No package has installed relink.
	}
	return fmt.Errorf("%w: %s is there: a package has put relink on this node: upgrade that package, or remove it first (apt-get remove relink)", ErrRefused, path)
}

// PlanUninstall decides what to remove. It changes nothing. The error matches ErrNotInstalled if there is no manifest.
func (o Options) PlanUninstall() (*Plan, error) {
	previous, err := loadManifest(o.Root)
	if err != nil {
		return nil, err
	}
	if previous.Version == 0 {
		return nil, fmt.Errorf("%w: there is no %s", ErrNotInstalled, inRoot(o.Root, manifestPath))
	}
	p := &Plan{opts: o, previous: previous}
	return p, p.decide(nil, false)
}

// Install carries out the plan of Options.Plan. After that, the caller starts the agent and calls SaveStarted. The error
// matches ErrRefused if a file is in the way. After any other error, some files are installed: the next run goes on
// from there.
func (p *Plan) Install() error {
	for _, s := range p.Steps {
		if s.Action == Refuse {
			return fmt.Errorf("%w: %s: %s", ErrRefused, inRoot(p.opts.Root, s.Path), s.Reason)
		}
	}
	if p.opts.PluginsOnly {
		return p.apply()
	}
	// First save both checksums of each file. So the manifest knows all files whenever a kill comes.
	if err := p.manifest(true).save(p.opts.Root); err != nil {
		return err
	}
	if err := p.apply(); err != nil {
		return err
	}
	return p.manifest(false).save(p.opts.Root)
}

// manifest returns the manifest for the time while the plan is carried out, or for the time afterwards.
func (p *Plan) manifest(applying bool) manifest {
	m := manifest{Relink: cniplugin.Version, Restart: p.NeedsRestart()}
	for _, s := range p.Steps {
		var sums []string
		if applying || s.Action == Leave {
			sums = slices.Clone(p.previous.sums(s.Path))
		}
		if s.sum != "" && !slices.Contains(sums, s.sum) {
			sums = append(sums, s.sum)
		}
		if len(sums) > 0 {
			m.Files = append(m.Files, entry{s.Path, sums})
		}
	}
	return m
}

// apply puts and removes files.
func (p *Plan) apply() error {
	for _, s := range p.Steps {
		path := inRoot(p.opts.Root, s.Path)
		var err error
		switch s.Action {
		case Create, Replace:
			err = s.write(path)
		case Remove:
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil // Somebody else has already removed the file.
			}
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.Action, path, err)
		}
	}
	return nil
}

// Uninstall carries out the plan of Options.PlanUninstall.
func (p *Plan) Uninstall() error {
	if err := p.apply(); err != nil {
		return err
	}
	// The manifest goes last, so that a killed run can be repeated. From now on, files that stay belong to whoever
	// changed them.
	return os.Remove(inRoot(p.opts.Root, manifestPath))
}

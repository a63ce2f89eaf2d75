package install

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/deploy/network"
	"github.com/relink-cni/relink/deploy/systemd"
)

// The places of files on a node, without the plugins. make install uses the same places.
const (
	prefix = "/usr/local"
	// DefaultCNIBin is where most runtimes look for plugins.
	DefaultCNIBin = "/opt/cni/bin"
	// Unit is the agent's unit.
	Unit    = "relink-agent.service"
	unitDir = prefix + "/lib/systemd/system"
	// The network managers read these.
	networkdFile       = prefix + "/lib/systemd/network/00-relink.network"
	networkManagerFile = "/etc/NetworkManager/conf.d/relink.conf"
)

var (
	plugins  = []string{"relink-macvlan", "relink-vlan", "relink-ipam", "relink-checkpoint", "relink-host-access"}
	programs = []string{"relink", "relink-agent"}
)

// programMode and textMode are the modes of installed files.
const (
	programMode fs.FileMode = 0o755
	textMode    fs.FileMode = 0o644
)

// File is a file to install.
type File struct {
	// Path is where it goes on the node, without Options.Root.
	Path string
	Mode fs.FileMode
	// Source is the file to copy. If Source is empty, Content is the content.
	Source  string
	Content []byte
}

// content returns the content of the file.
func (f File) content() ([]byte, error) {
	if f.Source == "" {
		return f.Content, nil
	}
	return os.ReadFile(f.Source)
}

// completionPaths are the paths where the shells look, by their names.
var completionPaths = map[string]string{
	"bash": prefix + "/share/bash-completion/completions/relink",
	"zsh":  prefix + "/share/zsh/site-functions/_relink",
	"fish": prefix + "/share/fish/vendor_completions.d/relink.fish",
}

// files returns what there is to install.
func files(o Options) ([]File, error) {
	list, err := programFiles(plugins, o.SourceDir, o.CNIBin)
	if err != nil || o.PluginsOnly {
		return list, err
	}
	executables, err := programFiles(programs, o.SourceDir, prefix+"/sbin")
	if err != nil {
		return nil, err
	}
	list = append(list, executables...)
	list = append(list, File{Path: filepath.Join(unitDir, Unit), Mode: textMode, Content: systemd.Unit},
		File{Path: networkdFile, Mode: textMode, Content: network.Networkd}, File{Path: networkManagerFile, Mode: textMode, Content: network.NetworkManager})
	for _, shell := range slices.Sorted(maps.Keys(o.Completions)) {
		list = append(list, File{Path: completionPaths[shell], Mode: textMode, Content: o.Completions[shell]})
	}
	pages, err := fs.Glob(os.DirFS(o.SourceDir), "man/*.8")
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		list = append(list, File{Path: filepath.Join(prefix, "share/man/man8", filepath.Base(page)), Mode: textMode, Source: filepath.Join(o.SourceDir, page)})
	}
	return list, nil
}

// programFiles returns the programs with these names.
func programFiles(names []string, sourceDir, targetDir string) ([]File, error) {
	var list []File
	for _, name := range names {
		path := filepath.Join(sourceDir, name)
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: not a file", path)
		}
		if err != nil {
			return nil, fmt.Errorf("a release has %s beside relink: %w; run relink install from a release's directory, or name it with --from", name, err)
		}
		list = append(list, File{Path: filepath.Join(targetDir, name), Mode: programMode, Source: path})
	}
	return list, nil
}

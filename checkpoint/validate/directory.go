package validate

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/pkg/printable"
)

// configFile is a file of a directory with one of the runtimeExtensions.
type configFile struct {
	path string
	// refused says why libcni does not load it. It is nil for a file that libcni loads.
	refused error
	// unknown says that this user may not read it. Runtimes may.
	unknown bool
}

// judgeDirectory says which file of a directory the runtimes take for the default network. files are in order by name.
//
// Both runtimes go through the files by name. At a file that it cannot load, containerd gives up and has no network
// (go-cni, loadFromConfDir). CRI-O passes over such a file (ocicni, loadNetworks). CRI-O also passes over a file whose
// plugins are not installed: the look at this node reports those. So nothing tells for sure which later file it takes.
func judgeDirectory(dir string, files []configFile) []ConfigFinding {
	if len(files) == 0 || files[0].unknown {
		return nil
	}
	finding := func(severity Severity, format string, args ...any) []ConfigFinding {
		return []ConfigFinding{{File: dir, Severity: severity, Message: printable.Line(fmt.Sprintf(format, args...))}}
	}
	first := files[0]
	if first.refused == nil {
		return finding(Note, "containerd and CRI-O take %s for all pods%s", filepath.Base(first.path), otherFiles(files[1:]))
	}
	return finding(Error, "containerd has no network: it does not load its first file, %s, and takes no later one; CRI-O passes over the file: %s",
		filepath.Base(first.path), errorText(first.refused))
}

func otherFiles(files []configFile) string {
	if len(files) == 0 {
		return ""
	}
	var bases []string
	for _, file := range files {
		bases = append(bases, filepath.Base(file.path))
	}
	return ", and not " + strings.Join(bases, ", ")
}

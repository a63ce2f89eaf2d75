package validate

import (
	"fmt"
	"strings"
)

// judgeDirectory says which file of a directory the runtimes take for the default network. files are the names of those with one of the
// runtimeExtensions, in order. refused says why libcni does not load the first of them, nil if it does.
//
// Both runtimes go through the files by name. At a file that it cannot load, containerd gives up and has no network
// (go-cni, loadFromConfDir). CRI-O passes over such a file (ocicni, loadNetworks). CRI-O also passes over a file whose
// plugins are not installed: the look at this node reports those. So nothing tells for sure which later file it takes.
func (c *collected) judgeDirectory(dir string, files []string, refused error) {
	if refused != nil {
		c.addFinding(Network{File: dir}, Error, fmt.Sprintf("containerd has no network: it does not load its first file, %s, and takes no later one; CRI-O passes over the file: %s",
			files[0], errorText(refused)))
	} else if len(files) > 0 {
		message := "containerd and CRI-O take " + files[0] + " for all pods"
		if len(files) > 1 {
			message += ", and not " + strings.Join(files[1:], ", ")
		}
		c.addFinding(Network{File: dir}, Note, message)
	}
}

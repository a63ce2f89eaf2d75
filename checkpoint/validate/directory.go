package validate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/printable"
)

// judgeDirectory says which file of a directory the runtimes take for the default network. files are in order by
// name, and content has the text of each. Only files with runtimeExtensions count.
//
// Both runtimes take the first file (containerd: go-cni, loadFromConfDir; CRI-O: ocicni, loadNetworks). If it can't be
// read, containerd has no network, and CRI-O takes the next file.
func judgeDirectory(dir string, files []string, content map[string][]byte) []Finding {
	var own []string
	for _, file := range files {
		if slices.Contains(runtimeExtensions, filepath.Ext(file)) {
			own = append(own, file)
		}
	}
	if len(own) == 0 {
		return nil
	}
	say := func(severity Severity, format string, args ...any) Finding {
		return Finding{File: dir, Severity: severity, Message: printable.Line(fmt.Sprintf(format, args...))}
	}
	taken := slices.IndexFunc(own, func(file string) bool { return loads(file, content[file]) == "" })
	var findings []Finding
	if why := loads(own[0], content[own[0]]); why != "" {
		then := "CRI-O takes none"
		if taken >= 0 {
			then = "CRI-O takes " + filepath.Base(own[taken])
		}
		findings = append(findings, say(Error, "containerd takes no network: %s is its first file and %s; %s", filepath.Base(own[0]), why, then))
	} else {
		findings = append(findings, say(Note, "containerd and CRI-O take %s for all pods%s", filepath.Base(own[0]), others(own[1:])))
	}
	return findings
}

func others(files []string) string {
	if len(files) == 0 {
		return ""
	}
	var bases []string
	for _, file := range files {
		bases = append(bases, filepath.Base(file))
	}
	return ", and not " + strings.Join(bases, ", ")
}

// loads says why a runtime does not load the file (libcni.ConfListFromFile, ConfFromFile). It is "" for a file that it loads.
func loads(file string, content []byte) string {
	var conf struct {
		Name    any               `json:"name"`
		Type    string            `json:"type"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if json.Unmarshal(content, &conf) != nil {
		return "can't be read"
	}
	if filepath.Ext(file) != ".conflist" {
		if conf.Type == "" {
			return `has no "type"`
		}
		return ""
	}
	if _, ok := conf.Name.(string); !ok {
		return `has no "name"`
	}
	if len(conf.Plugins) == 0 {
		return `has no "plugins"`
	}
	return ""
}

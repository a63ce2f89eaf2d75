package validate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrNothing says that there was nothing to validate. errors.Is matches it.
var ErrNothing = errors.New("no network configuration was read")

// Options say what to validate, and by what.
type Options struct {
	// Paths are files and directories. Directories below a directory are not read.
	Paths []string
	// PluginDirs are the directories in which the runtime looks for plugins.
	PluginDirs []string
	// FilesOnly leaves this node out.
	FilesOnly bool
}

// Report is what was found.
type Report struct {
	Files    int       `json:"files"`
	Networks int       `json:"networks"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"`
}

// Run validates the networks in the files. If it can read none, its error matches ErrNothing and says why.
func Run(o Options) (Report, error) {
	var all collected
	for _, path := range o.Paths {
		if err := all.add(path); err != nil {
			return Report{}, fmt.Errorf("%w: %w", ErrNothing, err)
		}
	}
	if len(all.networks) == 0 && len(all.findings) == 0 {
		return Report{}, fmt.Errorf("%w: none of the files has one: name *.conflist, *.conf, *.json, *.yaml or *.yml", ErrNothing)
	}
	chains, findings := readChains(all.networks)
	findings = append(findings, all.findings...)
	findings = append(findings, judgeRanges(chains)...)
	if !o.FilesOnly {
		findings = append(findings, judgeNode(chains, Look(needsOf(chains), o.PluginDirs))...)
	}
	return reportOf(all, findings), nil
}

func readChains(networks []Network) ([]chain, []Finding) {
	var chains []chain
	var findings []Finding
	for _, n := range networks {
		c, found := readChain(n)
		chains, findings = append(chains, c), append(findings, found...)
	}
	return chains, findings
}

func reportOf(all collected, findings []Finding) Report {
	slices.SortStableFunc(findings, compare)
	r := Report{Files: all.files, Networks: len(all.networks), Findings: slices.Compact(findings)}
	for _, f := range r.Findings {
		switch f.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		}
	}
	if r.Findings == nil {
		r.Findings = []Finding{} // In JSON it is a list, not null.
	}
	return r
}

// collected is what was read.
type collected struct {
	files    int
	networks []Network
	findings []Finding
}

// add reads a file, or those of a directory.
func (c *collected) add(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		_, err := c.addFile(path)
		return err
	}
	entries, err := os.ReadDir(path) // In order by name.
	if err != nil {
		return err
	}
	var files []string
	content := map[string][]byte{}
	for _, entry := range entries {
		file := filepath.Join(path, entry.Name())
		if entry.IsDir() || !IsConfig(entry.Name()) {
			continue
		}
		b, err := c.addFile(file)
		if err != nil {
			c.findings = append(c.findings, Finding{File: file, Severity: Error, Message: "can't be read: " + err.Error()})
			continue
		}
		files, content[file] = append(files, file), b
	}
	c.findings = append(c.findings, judgeDirectory(path, files, content)...)
	return nil
}

func (c *collected) addFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c.files++
	networks, findings := Read(path, b)
	c.networks, c.findings = append(c.networks, networks...), append(c.findings, findings...)
	return b, nil
}

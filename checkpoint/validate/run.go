package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/printable"
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

// ConfigReport is what was found.
type ConfigReport struct {
	Files    int             `json:"files"`
	Networks int             `json:"networks"`
	Errors   int             `json:"errors"`
	Warnings int             `json:"warnings"`
	Findings []ConfigFinding `json:"findings"`
}

// Run validates the networks in the files. A path that cannot be read is an error among the findings. If nothing can be
// read, Run's error matches ErrNothing and says why. If ctx is done before, its error matches that of ctx.
func Run(ctx context.Context, o Options) (ConfigReport, error) {
	c, err := collect(ctx, o.Paths)
	if err != nil {
		return ConfigReport{}, err
	}
	for _, n := range c.networks {
		c.readChain(n)
	}
	c.judgeRanges()
	if !o.FilesOnly {
		c.judgeNode(probeNode(c.chains, o.PluginDirs))
	}
	return c.report(), nil
}

// collect reads the paths. It fails if no network configuration is in them.
func collect(ctx context.Context, paths []string) (collected, error) {
	var c, unread collected
	var causes []error
	for _, path := range paths {
		err := c.add(ctx, path)
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		if err != nil {
			unread.addFinding(Network{File: path}, Error, "cannot be read: "+withoutPath(err).Error())
			causes = append(causes, err)
		}
	}
	switch {
	case len(c.networks) > 0 || len(c.findings) > 0:
		c.findings = append(c.findings, unread.findings...)
		return c, nil
	case len(causes) > 0:
		return c, fmt.Errorf("%w: %s", ErrNothing, printable.Joined(errors.Join(causes...)))
	}
	return c, fmt.Errorf("%w: none of the files has one: name *.conflist, *.conf, *.json, *.yaml or *.yml", ErrNothing)
}

func (c *collected) report() ConfigReport {
	slices.SortStableFunc(c.findings, compareFindings)
	r := ConfigReport{Files: c.files, Networks: len(c.networks), Findings: slices.Compact(c.findings)}
	for _, f := range r.Findings {
		switch f.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		}
	}
	if r.Findings == nil {
		r.Findings = []ConfigFinding{} // In JSON it is a list, not null.
	}
	return r
}

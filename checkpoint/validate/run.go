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
	chains, findings := readChains(c.networks)
	findings = append(findings, c.findings...)
	findings = append(findings, judgeRanges(chains)...)
	if !o.FilesOnly {
		findings = append(findings, judgeNode(chains, probeNode(chains, o.PluginDirs))...)
	}
	return reportOf(c, findings), nil
}

// collect reads the paths. It fails if no network configuration is in them.
func collect(ctx context.Context, paths []string) (collected, error) {
	var c collected
	var unread []ConfigFinding
	var causes []error
	for _, path := range paths {
		err := c.add(ctx, path)
		if ctxErr := ctx.Err(); ctxErr != nil {
			return c, ctxErr
		}
		if err != nil {
			unread = append(unread, ConfigFinding{File: path, Severity: Error, Message: "cannot be read: " + withoutPath(err).Error()})
			causes = append(causes, err)
		}
	}
	switch {
	case len(c.networks) > 0 || len(c.findings) > 0:
		c.findings = append(c.findings, unread...)
		return c, nil
	case len(causes) > 0:
		return c, fmt.Errorf("%w: %s", ErrNothing, printable.Joined(errors.Join(causes...)))
	}
	return c, fmt.Errorf("%w: none of the files has one: name *.conflist, *.conf, *.json, *.yaml or *.yml", ErrNothing)
}

func readChains(networks []Network) ([]chain, []ConfigFinding) {
	var chains []chain
	var findings []ConfigFinding
	for _, n := range networks {
		c, found := readChain(n)
		chains, findings = append(chains, c...), append(findings, found...)
	}
	return chains, findings
}

func reportOf(c collected, findings []ConfigFinding) ConfigReport {
	slices.SortStableFunc(findings, compareFindings)
	r := ConfigReport{Files: c.files, Networks: len(c.networks), Findings: slices.Compact(findings)}
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

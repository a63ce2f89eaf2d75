package validate

import (
	"context"
	"errors"
	"fmt"
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

// Run validates the networks in the files. If it can read none, its error matches ErrNothing and says why. If ctx is
// done first, its error matches the error of ctx.
func Run(ctx context.Context, o Options) (Report, error) {
	var all collected
	for _, path := range o.Paths {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		if err := all.add(ctx, path); err != nil {
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
		chains, findings = append(chains, c...), append(findings, found...)
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

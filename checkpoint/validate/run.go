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

// Report is what was found.
type Report struct {
	Files    int       `json:"files"`
	Networks int       `json:"networks"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"`
}

// Run validates the networks in the files. A path that cannot be read is an error among the findings. If nothing can be
// read, Run's error matches ErrNothing and says why. If ctx is done before, its error matches that of ctx.
func Run(ctx context.Context, o Options) (Report, error) {
	all, err := collect(ctx, o.Paths)
	if err != nil {
		return Report{}, err
	}
	chains, findings := readChains(all.networks)
	findings = append(findings, all.findings...)
	findings = append(findings, judgeRanges(chains)...)
	if !o.FilesOnly {
		findings = append(findings, judgeNode(chains, Look(needsOf(chains), o.PluginDirs))...)
	}
	return reportOf(all, findings), nil
}

// collect reads the paths. It fails if no network configuration is in them.
func collect(ctx context.Context, paths []string) (collected, error) {
	var all collected
	var unread []Finding
	var why []error
	for _, path := range paths {
		err := all.add(ctx, path)
		if done := ctx.Err(); done != nil {
			return all, done
		}
		if err != nil {
			unread = append(unread, Finding{File: path, Severity: Error, Message: "cannot be read: " + reason(err)})
			why = append(why, err)
		}
	}
	switch {
	case len(all.networks) > 0 || len(all.findings) > 0:
		all.findings = append(all.findings, unread...)
		return all, nil
	case len(why) > 0:
		return all, fmt.Errorf("%w: %s", ErrNothing, printable.Joined(errors.Join(why...)))
	}
	return all, fmt.Errorf("%w: none of the files has one: name *.conflist, *.conf, *.json, *.yaml or *.yml", ErrNothing)
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

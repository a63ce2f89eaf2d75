package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// versions are the versions that a bug report should name.
type versions struct {
	Version string `json:"version"`
	// Commit is the commit that the program was built from. It is empty if the build does not know it. Modified says
	// that files were changed since that commit.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernel   string `json:"kernel"`
	// Checkpoints and Leases are the versions of the stored formats.
	Checkpoints int `json:"checkpointVersion"`
	Leases      int `json:"leaseSchema"`
}

func newVersion() *cobra.Command {
	cmd := newVerb("version", func(cmd *cobra.Command, _ []string) error {
		return cli.Show(screenOf(cmd), currentVersions(), nil, true, versions.write)
	})
	cli.AddOutput(cmd)
	return cmd
}

func currentVersions() versions {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // The output of uname -r. It can stay unknown.
	report := versions{
		Version: cniplugin.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernel: strings.TrimSpace(string(kernel)),
		Checkpoints: checkpoint.Version, Leases: lease.Schema,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				report.Commit = setting.Value
			case "vcs.modified":
				report.Modified = setting.Value == "true"
			}
		}
	}
	return report
}

func (report versions) write(s *cli.Screen) {
	var d cli.Description
	commit := report.Commit
	if report.Modified {
		commit += " with changes"
	}
	d.Add(
		"relink:", report.Version,
		"Commit:", commit,
		"Go:", report.Go+" "+report.Platform,
		"Kernel:", report.Kernel,
		"Checkpoints:", fmt.Sprintf("version %d", report.Checkpoints),
		"Leases:", fmt.Sprintf("schema %d", report.Leases),
	)
	d.Write(s)
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

func newAudit() *cobra.Command {
	var files nodeFiles
	cmd := newVerb("audit", func(cmd *cobra.Command, _ []string) error {
		sources, err := files.openAudited(cmd)
		if err != nil {
			return err
		}
		report, err := audit.Run(cmd.Context(), sources)
		return cli.Show(screenOf(cmd), report, err, report.IsHealthy(), auditLines)
	})
	files.addFlags(cmd)
	cli.AddOutput(cmd)
	return cmd
}

func auditLines(report audit.NodeReport, s *cli.Screen) {
	var lines []reportLine
	for _, f := range report.Findings {
		switch {
		case s.Quiet && f.Severity != audit.Error, f.Kind == audit.Fine && !s.Verbose:
			continue
		}
		head, after := string(f.Severity)+": "+string(f.Kind), ""
		if f.Kind == audit.Fine {
			head = string(f.Kind)
		}
		if f.Proven {
			after = ". relink gc frees it"
		}
		lines = append(lines, findingLine(f, head, after))
	}
	writeLines(lines, s)
	printUnseen(report.Problems, report.Notes, report.OwnersUnasked, s)
	s.Info(auditSummary(report))
}

// printUnseen says what was not looked at.
func printUnseen(problems, notes []string, ownersLeft int, s *cli.Screen) {
	printProblems(s, problems)
	if s.Quiet {
		return
	}
	s.PrintLines(notes)
	if ownersLeft > 0 {
		s.Printf("%s not asked for: there are too many for one look. Another look asks for others", printable.Count(ownersLeft, "owner"))
	}
}

func auditSummary(report audit.NodeReport) string {
	parts := []string{printable.Count(report.Counts[audit.Fine], "attachment") + " fine"}
	for _, k := range audit.Kinds {
		if n := report.Counts[k]; n > 0 && k != audit.Fine {
			parts = append(parts, fmt.Sprintf("%s: %d", k, n))
		}
	}
	summary := fmt.Sprintf("%s; %s, %d reserved", strings.Join(parts, ", "), printable.Count(report.Leases, "lease"), report.Reservations)
	if report.KeptByHand > 0 {
		summary += fmt.Sprintf(" (%d by hand)", report.KeptByHand)
	}
	return summary
}

// findingLine is the line of a finding. An address is named by itself, an attachment by its pod, sandbox and interface. after follows the
// evidence. Its first piece differs from one namespace that is gone to the next.
func findingLine(f audit.Finding, head, after string) reportLine {
	line := reportLine{head: head, noun: "attachment", short: f.Pod.Or(selection.ShortID(f.Attachment.ContainerID)), text: strings.Join(f.Evidence, "; ") + after}
	var words []string
	if f.Address.IsValid() {
		line.noun, line.short = "address", f.Address.String()
		words = append(words, line.short)
	}
	if f.Pod.Name != "" {
		words = append(words, f.Pod.String())
	} else if f.Owner.Kind != "" && f.Address.IsValid() {
		words = append(words, "("+f.Owner.String()+")")
	}
	if f.Attachment.ContainerID != "" && !f.Subject.Reservation {
		words = append(words, selection.ShortID(f.Attachment.ContainerID), f.Attachment.IfName)
	}
	if f.Network != "" {
		words = append(words, "on "+f.Network)
	}
	// The other verbs look only in the default directory.
	if usual, err := lease.Dir(""); f.LeaseDir != "" && (err != nil || f.LeaseDir != usual) {
		words = append(words, "in "+f.LeaseDir)
	}
	line.subject = strings.Join(words, " ")
	if f.Fields.NamespaceState == sandbox.VerdictGone && len(f.Evidence) > 0 {
		line.group = strings.Join(append([]string{"the network namespaces are gone"}, f.Evidence[1:]...), "; ") + after
	}
	return line
}

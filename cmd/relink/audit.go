package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

func newAudit() *cobra.Command {
	var cacheDir string
	var leases leaseDir
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Say what does not agree: pods, checkpoints, addresses, owners",
		Long: `Compare the checkpoints, the leases of relink-ipam, the live sandboxes, their interfaces and the
owners of reserved addresses with each other. It changes nothing. It prints one line for each
finding, with the evidence: errors first, then information. Many equal lines become one:
--verbose shows each, and the attachments that are fine. A pod that relink did not attach, and
that has no lease, is never in it.

An error is a pod that is cut off or may be: a lost or a wrong interface, two pods with one
address, an address without a lease. A lease, a reservation or a checkpoint that nobody needs
any more is information: relink gc frees it. relink-agent asks the container runtime and the
Kubernetes API. Without an agent nobody is asked.

Exit status 0: there is no error; 1: there is one, or something could not be looked at, and the
output names it; 2: usage or environment.`,
		Example: `  relink audit
  relink audit -v       # also what is fine
  relink audit -o json  # with the evidence as fields`,
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sources, err := auditSources(cmd, leases, cacheDir)
			if err != nil {
				return err
			}
			report, err := audit.Run(cmd.Context(), sources)
			if err != nil {
				return err
			}
			s := screenOf(cmd)
			return s.present(report, report.IsHealthy(), func() { auditLines(report, s) })
		},
	}
	addOnlyDataDir(cmd.Flags(), &leases)
	addCacheDir(cmd, &cacheDir)
	addOutput(cmd)
	return cmd
}

func auditLines(report audit.NodeReport, s *screen) {
	var lines []reportLine
	for _, f := range report.Findings {
		switch {
		case s.quiet && f.Severity != audit.Error, f.Kind == audit.Fine && !s.verbose:
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
	s.info(auditSummary(report))
}

// printUnseen says what was not looked at.
func printUnseen(problems, notes []string, ownersLeft int, s *screen) {
	printProblems(s, problems)
	if s.quiet {
		return
	}
	s.printLines(notes)
	if ownersLeft > 0 {
		s.printf("%s not asked for: there are too many for one look. Another look asks for others", printable.Count(ownersLeft, "owner"))
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

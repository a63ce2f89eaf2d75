package guard

import (
	"fmt"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/printable"
)

// trouble is what is wrong with one sandbox or interface, or with the node if subject is empty.
type trouble struct{ subject, text string }

// shownNames is how many names and reasons one line has.
const shownNames = 3

// foldTroubles returns a line for each of them, and one line for many with the same text.
func foldTroubles(troubles []trouble) (lines []string) {
	for _, alike := range printable.Fold(troubles, func(t trouble) string { return t.text }) {
		subject, text := alike[0].subject, alike[0].text
		if len(alike) > 1 {
			var names []string
			for _, t := range alike {
				names = append(names, t.subject)
			}
			subject = fmt.Sprintf("%s (%s)", printable.Count(len(alike), "interface"), printable.First(names, shownNames, ", "))
		}
		if subject != "" {
			text = subject + ": " + text
		}
		lines = append(lines, text)
	}
	return lines
}

// newTroubles returns a trouble for each of the reasons.
func newTroubles(subject string, reasons ...string) (troubles []trouble) {
	for _, reason := range reasons {
		troubles = append(troubles, trouble{subject, reason})
	}
	return troubles
}

// troublesIn returns what is wrong with the attachments of a report.
func troublesIn[O interface{ Common() change.Outcome }](report change.Report[O]) (wrong []trouble) {
	for _, outcome := range report.Outcomes {
		if o := outcome.Common(); o.IsWrong() {
			wrong = append(wrong, trouble{interfaceName(o), o.Reason})
		}
	}
	return wrong
}

// notBack notes what the current step did not bring back, for each of the reasons. The report has it.
func (g *guard) notBack(subject string, reasons ...string) {
	g.troubles = append(g.troubles, newTroubles(subject, reasons...)...)
}

// unlessForced returns an error with what is wrong, if there is anything. With --force it only notes that.
func (g *guard) unlessForced(wrong []trouble, problem, remedy string) error {
	if len(wrong) == 0 {
		return nil
	}
	problem += ": " + printable.First(foldTroubles(wrong), shownNames, "; ")
	if g.journal.Plan.Force {
		g.notef("%s", problem)
		return nil
	}
	return fmt.Errorf("%s: %s, --force goes on all the same", problem, remedy)
}

func interfaceName(o change.Outcome) string { return o.SandboxName() + " " + o.Attachment.IfName }

package status

import (
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

// Observations are what was found on a node.
type Observations struct {
	// Report is that of a dry run of a restore.
	Report restore.Report
	// Unrecorded are the interfaces without a checkpoint, and what could not be looked at (capture.FindUnrecorded).
	Unrecorded []capture.InterfaceOutcome
	// DeadHolders is the number of addresses that sandboxes hold which are gone.
	DeadHolders int
	// Free has the devices of the host that could replace a missing one, by its name.
	Free map[string][]string
	// Agent is what relink-agent says, nil if none answers.
	Agent *control.Status
}

// Summary is how the pods of a node are.
type Summary struct {
	Parents []restore.DeviceState `json:"parents"`
	// Attachments is the number of attachments in each state. Pods is the number of their pods.
	Attachments map[change.State]int `json:"attachments"`
	Pods        int                  `json:"pods"`
	// Causes say why attachments are not as recorded. The cause of most of them comes first.
	Causes []Cause `json:"causes"`
	// ToDo is what a person should do.
	ToDo []ToDo `json:"toDo"`
	// Problems are the differences from the record that belong to no attachment.
	Problems []string `json:"problems,omitempty"`
	// Notes are facts that are good to know, such as a NIC under another name.
	Notes []string `json:"notes,omitempty"`
	// Names are the pods or else the sandboxes of the attachments, as a command line takes them.
	Names map[attachment.Key]string `json:"-"`
	// Recorded says that everything is as recorded, and that nothing is unknown.
	Recorded bool `json:"-"`
}

// SplitUnrecorded returns the interfaces without a checkpoint, and what could not be looked at.
func SplitUnrecorded(found []capture.InterfaceOutcome) (missing []capture.InterfaceOutcome, problems []string) {
	missing = []capture.InterfaceOutcome{}
	for _, o := range found {
		if o.State == change.Failed {
			problems = append(problems, o.Reason)
		} else {
			missing = append(missing, o)
		}
	}
	return missing, problems
}

// AddAgentReasons gives interfaces without a checkpoint the reason that the agent has for them.
func AddAgentReasons(missing []capture.InterfaceOutcome, agent control.Status) {
	for i := range missing {
		o := &missing[i]
		for _, u := range agent.Unrecorded {
			if o.Reason == "" && u.Netns == o.Namespace.Path && u.Attachment.IfName == o.Interface.Link.Name {
				o.Reason = "relink-agent: " + u.Reason
			}
		}
	}
}

// CaptureAdvice says how to get a checkpoint of an interface that has none, or what keeps relink capture from writing one.
func CaptureAdvice(o capture.InterfaceOutcome) string {
	switch {
	case o.Reason != "":
		return o.Reason
	case o.Attachment.ContainerID == checkpoint.UnnamedID(o.Namespace):
		return "no CNI cache and no lease tells whose it is. The DEL of a killed ADD takes it away; if somebody made it by hand, relink capture writes one"
	}
	return "relink capture writes one"
}

// Summarize sums up what was found. It names each thing once: what Causes has is not in Problems, and checkpoints that cannot be read are in
// ToDo only.
func Summarize(found Observations) Summary {
	report := found.Report
	missing, problems := SplitUnrecorded(found.Unrecorded)
	s := Summary{
		Parents: append([]restore.DeviceState{}, report.Devices...), Attachments: map[change.State]int{}, Names: map[attachment.Key]string{},
		Causes: Causes(report), Notes: report.Notes,
		Recorded: report.Complete() && len(found.Unrecorded) == 0,
	}
	pods := map[string]bool{}
	for _, o := range report.Outcomes {
		s.Attachments[StateOf(o)]++
		name := o.Pod.Or(selection.ShortID(o.Attachment.ContainerID))
		s.Names[o.Attachment], pods[name] = name, true
	}
	s.Pods = len(pods)
	s.Problems = slices.DeleteFunc(slices.Concat(report.Problems, problems), func(problem string) bool {
		return slices.ContainsFunc(s.Causes, func(c Cause) bool { return strings.HasPrefix(problem, c.Reason) })
	})
	s.ToDo = s.toDo(found, missing)
	s.Causes = slices.DeleteFunc(s.Causes, func(c Cause) bool { return c.Kind == CauseUnreadable })
	return s
}

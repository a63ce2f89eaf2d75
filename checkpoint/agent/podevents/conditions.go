package podevents

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/pkg/attachment"
)

// The reasons of conditions beside InterfaceLost. Do not change them: people alert on them.
const (
	InterfacesWhole = "InterfacesWhole"
	InterfacesLost  = "InterfacesLost"
	NothingRecorded = "NothingRecorded"
)

// Conditions takes the conditions that pods and their node are to have. It returns at once: the agent's loop calls it.
type Conditions interface {
	SetPod(pod attachment.Pod, ready bool, reason, message string)
	ForgetPod(pod attachment.Pod)
	SetNode(cutOff bool, reason, message string)
}

// NewConditionObserver returns an observer that sets the conditions. A restored pod whose addresses are not announced keeps its condition,
// and so does a pod of which nothing is proven.
func NewConditionObserver(conditions Conditions) func(agent.Event) {
	return func(event agent.Event) {
		e, ok := event.(agent.Connectivity)
		if !ok {
			return
		}
		for _, p := range e.Pods {
			switch p.State {
			case agent.PodConnected:
				conditions.SetPod(p.Pod, true, InterfacesWhole, "All recorded network interfaces are whole")
			case agent.PodCutOff:
				loss := NewEvent(p.Loss)
				conditions.SetPod(p.Pod, false, loss.Reason, loss.Message)
			case agent.PodUnknown:
				conditions.ForgetPod(p.Pod)
			}
		}
		conditions.SetNode(nodeCondition(e.Lost))
	}
}

// SetEmpty sets the condition of a pod without an interface on a device of the node.
func SetEmpty(conditions Conditions, pod attachment.Pod) {
	conditions.SetPod(pod, true, NothingRecorded, "No network interface of the pod is on a device of the node")
}

// nodeCondition is a pure function: it returns the condition of a node with these lost attachments by their bases.
func nodeCondition(lost map[string]int) (cutOff bool, reason, message string) {
	total := 0
	var bases []string
	for _, base := range slices.Sorted(maps.Keys(lost)) {
		total += lost[base]
		bases = append(bases, fmt.Sprintf("%s (%d)", base, lost[base]))
	}
	switch total {
	case 0:
		return false, InterfacesWhole, "No network interface of a pod is lost"
	case 1:
		return true, InterfacesLost, "1 network interface of a pod is lost with what it was on: " + bases[0]
	}
	return true, InterfacesLost, fmt.Sprintf("%d network interfaces of pods are lost with what they were on: %s", total, strings.Join(bases, ", "))
}

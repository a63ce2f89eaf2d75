package podevents

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/pkg/attachment"
)

// conditionLog keeps what is set.
type conditionLog []string

func (l *conditionLog) SetPod(pod attachment.Pod, ready bool, reason, message string) {
	*l = append(*l, fmt.Sprint(pod.Name, " ", ready, " ", reason, ": ", message))
}
func (l *conditionLog) ForgetPod(pod attachment.Pod) { *l = append(*l, pod.Name+" forgotten") }
func (l *conditionLog) SetNode(cutOff bool, reason, message string) {
	*l = append(*l, fmt.Sprint("node ", cutOff, " ", reason, ": ", message))
}

func TestConditions(t *testing.T) {
	pod := func(name string) attachment.Pod { return attachment.Pod{Namespace: "shop", Name: name, UID: "u"} }
	loss := agent.InterfaceChange{Attachment: attachment.Key{Network: "vlan3", IfName: "eth0"}, State: agent.Lost, Base: "bond4", Device: "bond4"}
	l := &conditionLog{}
	observe := NewConditionObserver(l)
	observe(agent.WakeTimer)
	observe(agent.Connectivity{Pods: []agent.PodConnectivity{
		{Pod: pod("whole"), State: agent.PodConnected}, {Pod: pod("lost"), State: agent.PodCutOff, Loss: loss},
		{Pod: pod("restored"), State: agent.PodUnannounced}, {Pod: pod("gone"), State: agent.PodUnknown},
	}, Lost: map[string]int{"eth1": 1, "bond4": 250}})
	observe(agent.Connectivity{Lost: map[string]int{"bond4": 1}})
	observe(agent.Connectivity{})
	want := conditionLog{
		"whole true InterfacesWhole: All recorded network interfaces are whole",
		"lost false InterfaceLost: Network interface eth0 (network vlan3) is lost: bond4 has gone. It will be restored when the device is back",
		"gone forgotten",
		"node true InterfacesLost: 251 network interfaces of pods are lost with what they were on: bond4 (250), eth1 (1)",
		"node true InterfacesLost: 1 network interface of a pod is lost with what it was on: bond4 (1)",
		"node false InterfacesWhole: No network interface of a pod is lost",
	}
	if !cmp.Equal(*l, want) {
		t.Error(cmp.Diff(want, *l))
	}
}

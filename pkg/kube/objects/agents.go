package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var agentPods = Kind{"", "Pod", "pods", []string{"v1"}, Whole}

// AgentPod is a pod of relink-agent.
type AgentPod struct {
	Namespace, Name string
	// Node is where it runs, or will. Unscheduled says that it waits for the scheduler.
	Node        string
	Unscheduled bool
	// Port is where it serves its metrics, 0 for nowhere.
	Port int32
	// Ready says that its agent has answered the kubelet lately. Ending says that the pod is being deleted.
	Ready, Ending bool
}

// AgentPods returns the agents' pods in the namespace, by the label of deploy/kubernetes.
func (c *Client) AgentPods(ctx context.Context, namespace string) (pods []AgentPod, err error) {
	items, err := list[corev1.Pod](ctx, PoolAPI{c}, request{Kind: agentPods, namespace: namespace, labels: "app.kubernetes.io/name=relink-agent"})
	for _, p := range items {
		pod := AgentPod{Namespace: p.Namespace, Name: p.Name, Node: nodeOf(p), Unscheduled: p.Spec.NodeName == "", Ending: p.DeletionTimestamp != nil}
		for _, container := range p.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name == "metrics" {
					pod.Port = port.ContainerPort
				}
			}
		}
		pod.Ready = slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		pods = append(pods, pod)
	}
	return pods, err
}

// nodeOf returns the node of a pod. That of a DaemonSet names it in its affinity, also before it is scheduled.
func nodeOf(p corev1.Pod) string {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return p.Spec.NodeName
}

// AgentMetrics returns the page with the metrics of an agent. The API server asks it.
func (c *Client) AgentMetrics(ctx context.Context, p AgentPod) ([]byte, error) {
	page, err := c.do(ctx, request{Kind: agentPods, version: "v1", verb: "get", namespace: p.Namespace, name: fmt.Sprintf("%s:%d", p.Name, p.Port), subresource: "proxy/metrics"})
	if errors.Is(err, ErrNotServed) { // The pod is gone, or something else answers there.
		err = fmt.Errorf("pod %s has no page /metrics on port %d", p.Name, p.Port)
	}
	return page, err
}

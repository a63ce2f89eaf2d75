package objects

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The API server is asked for the page on the port of the pod that has the name metrics.
func TestAgents(t *testing.T) {
	answers := map[string]int{"there:9477": 200, "forbidden:9477": 403, "other:9477": 404}
	const pod = `{"metadata":{"name":%q,"namespace":"r"},"spec":{"nodeName":"node1","containers":[{"ports":[{"name":"probes","containerPort":1},{"name":%q,"containerPort":9477}]}]},"status":{"conditions":[{"type":"Ready","status":%q}]}}`
	c, asked := served(t, func(w http.ResponseWriter, r *http.Request) {
		for name, code := range answers {
			if r.URL.Path == "/api/v1/namespaces/r/pods/"+name+"/proxy/metrics" {
				w.WriteHeader(code)
				fmt.Fprint(w, "page of "+name)
				return
			}
		}
		fmt.Fprintf(w, `{"kind":"PodList","items":[`+pod+`,`+pod+`]}`, "there", "metrics", "True", "none", "web", "False")
	})
	pods, err := c.AgentPods(t.Context(), "r")
	want := []AgentPod{{Namespace: "r", Name: "there", Node: "node1", Port: 9477, Ready: true}, {Namespace: "r", Name: "none", Node: "node1"}}
	if diff := cmp.Diff(want, pods); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	for name, says := range map[string]string{
		"there": "page of there:9477 <nil>", "other": " pod other has no page /metrics on port 9477",
		"forbidden": ` the Kubernetes API refuses: status 403, not in the API's own form. This account needs the rule {apiGroups: [""], resources: ["pods/proxy"], verbs: ["get"]}`,
	} {
		page, err := c.AgentMetrics(t.Context(), AgentPod{Namespace: "r", Name: name, Port: 9477})
		if err != nil {
			page = nil
		}
		if got := fmt.Sprintf("%s %v", page, err); got != says {
			t.Errorf("%s: %s, want %s", name, got, says)
		}
	}
	if len(asked.all) != 4 {
		t.Errorf("requests %q", asked.all)
	}
}

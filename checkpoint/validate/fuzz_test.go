package validate

import (
	"strings"
	"testing"
)

// FuzzRead shows that no file makes relink validate panic or hang, and that each finding is one line.
func FuzzRead(f *testing.F) {
	f.Add("10.conflist", list(good))
	f.Add("10.conf", `{"name": "pods", "type": "relink-vlan", "master": ["a", "b"], "vlanId": 3, "mtu": 1.5, "vlanId": "x"}`)
	f.Add("10.conflist", list(`{"type": "macvlan", "ipam": {"type": "relink-ipam", "ranges": [[{"subnet": 7}]], "routes": [null]}}, {}, [], null, {"type": "relink-checkpoint"}`))
	f.Add("x.yaml", "kind: List\nitems:\n- kind: NetworkAttachmentDefinition\n  metadata: {name: lan}\n  spec:\n    config: '{\"type\": \"relink-macvlan\"}'\n---\n{}\n")
	f.Add("x.json", `{"kind": 7, "items": [{"kind": "NetworkAttachmentDefinition", "spec": {"config": {}}}]}`)
	f.Fuzz(func(t *testing.T, file, content string) {
		var c collected
		c.read(file, []byte(content))
		for _, n := range c.networks {
			c.readChain(n)
		}
		c.judgeRanges()
		c.judgeNode(Node{Problems: map[need]string{{key: moduleNeed, value: "macvlan"}: "install it"}})
		c.judgeDirectory("d", []string{file}, loadError(true, []byte(content)))
		c.judgeDirectory("d", []string{file}, loadError(false, []byte(content)))
		for _, finding := range c.findings {
			if strings.Contains(finding.Message, "\n") || finding.Message == "" {
				t.Errorf("not one line: %q", finding.Message)
			}
		}
	})
}

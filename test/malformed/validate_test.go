package malformed

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// expectValidated says that relink validate refuses the configuration in a file in the words of an ADD. The plugin gets
// the configuration as libcni writes it anew. What libcni mends is no error.
func (n node) expectValidated(t *testing.T, plugin, config string) {
	t.Helper()
	written := &libcni.PluginConfig{Bytes: []byte(config)}
	given, err := libcni.InjectConf(written, map[string]any{"name": "pods", "cniVersion": "1.1.0"})
	want := ""
	if err == nil {
		want = n.refusal(t, plugin, string(given.Bytes))
	}
	file := n.dir + "/10-pods.conf"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin+"/relink", "validate", "--cni-bin", bin, "-o", "json", file)
	out, exit := cmd.Output()
	var report struct {
		Errors   int
		Findings []struct{ Severity, Message string }
	}
	if err := json.Unmarshal(out, &report); err != nil || (exit == nil) != (report.Errors == 0) {
		t.Fatalf("%.400s: %v, %v\n%s", config, err, exit, out)
	}
	found := false
	for _, f := range report.Findings {
		expectReadable(t, f.Message)
		found = found || f.Severity == "error" && (want == "" || f.Message == want)
	}
	if refused := want != "" || err != nil; found != refused {
		t.Errorf("%.400s\nlibcni: %v, ADD: %s\nvalidate: %s", config, err, want, out)
	}
}

// refusal returns what an ADD says against the configuration, "" for nothing. An ADD that does not refuse it is undone.
func (n node) refusal(t *testing.T, plugin, config string) string {
	t.Helper()
	said := n.call(t, plugin, "ADD", config)
	if said.Code == types.ErrInvalidNetworkConfig || said.Code == types.ErrDecodingFailure {
		return strings.TrimPrefix(said.Msg, "IPAM plugin relink-ipam: ")
	}
	if undone := n.call(t, plugin, "DEL", config); undone.Code != 0 {
		t.Errorf("%.400s: DEL: %s", config, undone.Msg)
	}
	return ""
}

// What an ADD refuses on this node, relink validate has said before, in the same words.
func TestValidateSaysWhatAnAddWould(t *testing.T) {
	n := newNode(t)
	for plugin, all := range of {
		for _, m := range all {
			// A plugin that is not there is named by its directories in other words.
			if !strings.Contains(m.body, "relink-ipma") && !strings.Contains(m.body, "prevResult") {
				n.expectValidated(t, plugin, config(n, plugin, m.body))
			}
		}
	}
	for _, m := range section {
		// The file is read by nobody but an ADD.
		if !strings.Contains(m.body, "/etc/none/resolv.conf") {
			n.expectValidated(t, "relink-macvlan", config(n, "relink-macvlan", `"master": "lan0", "ipam": `+ipam(n, m.body)))
		}
	}
	for _, m := range asked {
		n.expectValidated(t, "relink-macvlan", config(n, "relink-macvlan", m.body))
	}
	// An ADD looks at these after it has made the store.
	for _, never := range []string{`"args": {"cni": {"ips": ["10.9.0.5", "10.8.0.5"]}}`, `"runtimeConfig": {"ips": ["10.9.0.5", "10.9.0.6/24"]}`, `"runtimeConfig": {"ips": ["10.9.0.1"]}`} {
		n.expectValidated(t, "relink-macvlan", config(n, "relink-macvlan", never))
	}
	for _, mended := range []string{`"master": "lan0", "mtu": 1.4e3`, "\"master\": \"lan0\", \"_comment\": \"caf\xe9\"", `"master": "lan0", "_comment": "\ud800"`, `"mtu": "x", "master": "lan0", "mtu": 1400`} {
		n.expectValidated(t, "relink-macvlan", config(n, "relink-macvlan", mended))
	}
}

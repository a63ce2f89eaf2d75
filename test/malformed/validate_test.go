package malformed

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// validated is a configuration in a file, and what an ADD says against it.
type validated struct {
	config, want string
	// unread is why libcni cannot read it.
	unread error
}

// added returns what an ADD says against the configuration. The plugin gets it as libcni writes it anew: what libcni mends is no error.
func (n node) added(t *testing.T, plugin, config string) validated {
	t.Helper()
	v := validated{config: config}
	given, err := libcni.InjectConf(&libcni.PluginConfig{Bytes: []byte(config)}, map[string]any{"name": "pods", "cniVersion": "1.1.0"})
	if v.unread = err; err == nil {
		v.want = n.refusal(t, plugin, string(given.Bytes))
	}
	return v
}

// expectValidated says that relink validate refuses each configuration in the words of an ADD.
func (n node) expectValidated(t *testing.T, all []validated) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"validate", "--cni-bin", bin, "-o", "json"}
	for i, v := range all {
		args = append(args, fmt.Sprintf("%s/%03d.conf", dir, i))
		if err := os.WriteFile(args[len(args)-1], []byte(v.config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, exit := exec.Command(bin+"/relink", args...).Output()
	var report struct {
		Files    int
		Findings []struct{ File, Severity, Message string }
	}
	if err := json.Unmarshal(out, &report); err != nil || exit == nil || report.Files != len(all) {
		t.Fatalf("%v, %v\n%s", err, exit, out)
	}
	errors := map[string][]string{}
	for _, f := range report.Findings {
		expectReadable(t, f.Message)
		if f.Severity == "error" {
			errors[f.File] = append(errors[f.File], f.Message)
		}
	}
	for i, v := range all {
		said := errors[args[len(args)-len(all)+i]]
		refused := v.want != "" || v.unread != nil
		if refused != (len(said) > 0) || v.want != "" && !slices.Contains(said, v.want) {
			t.Errorf("%.400s\nlibcni: %v, ADD: %s\nvalidate: %q", v.config, v.unread, v.want, said)
		}
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
	var all []validated
	add := func(plugin, config string) { all = append(all, n.added(t, plugin, config)) }
	for plugin, list := range of {
		for _, m := range list {
			// A plugin that is not there is named by its directories in other words.
			if !strings.Contains(m.body, "relink-ipma") && !strings.Contains(m.body, "prevResult") {
				add(plugin, config(n, plugin, m.body))
			}
		}
	}
	for _, m := range section {
		// The file is read by nobody but an ADD.
		if !strings.Contains(m.body, "/etc/none/resolv.conf") {
			add("relink-macvlan", config(n, "relink-macvlan", `"master": "lan0", "ipam": `+ipam(n, m.body)))
		}
	}
	for _, m := range asked {
		add("relink-macvlan", config(n, "relink-macvlan", m.body))
	}
	// An ADD looks at these after it has made the store.
	for _, never := range []string{`"args": {"cni": {"ips": ["10.9.0.5", "10.8.0.5"]}}`, `"runtimeConfig": {"ips": ["10.9.0.5", "10.9.0.6/24"]}`, `"runtimeConfig": {"ips": ["10.9.0.1"]}`} {
		add("relink-macvlan", config(n, "relink-macvlan", never))
	}
	for _, mended := range []string{`"master": "lan0", "mtu": 1.4e3`, "\"master\": \"lan0\", \"_comment\": \"caf\xe9\"", `"master": "lan0", "_comment": "\ud800"`, `"mtu": "x", "master": "lan0", "mtu": 1400`} {
		add("relink-macvlan", config(n, "relink-macvlan", mended))
	}
	n.expectValidated(t, all)
}

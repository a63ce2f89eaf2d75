package objects

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubeconfigOf writes a kubeconfig with two contexts: c, which is current, and NAME. Each has an API of its own.
func kubeconfigOf(t *testing.T, path, name string) string {
	t.Helper()
	text := strings.NewReplacer("NAME", name).Replace(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://NAME-c"}}, {name: NAME, cluster: {server: "http://NAME"}}]
contexts: [{name: c, context: {cluster: c, user: u}}, {name: NAME, context: {cluster: NAME, user: u}}]
current-context: c
users: [{name: u, user: {token: secret}}]
`)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A person's API is the one that kubectl would ask. Without a file and without the environment, that is the one of ~/.kube/config: client-go
// has found the home before the test runs.
func TestConnectAsPerson(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	given, first, second := kubeconfigOf(t, filepath.Join(dir, "given"), "given"), kubeconfigOf(t, filepath.Join(dir, "first"), "first"), kubeconfigOf(t, filepath.Join(dir, "second"), "second")
	for name, test := range map[string]struct {
		file, context, env string
		host, err          string
	}{
		"a file":                      {given, "", first, "http://given-c", ""},
		"a context of a file":         {given, "given", first, "http://given", ""},
		"the environment":             {"", "", first, "http://first-c", ""},
		"the first of several files":  {"", "", first + ":" + second, "http://first-c", ""},
		"a context of another file":   {"", "second", first + ":" + second, "http://second", ""},
		"a missing file of several":   {"", "", filepath.Join(dir, "none") + ":" + second, "http://second-c", ""},
		"nothing":                     {"", "", "", "", "no Kubernetes API is configured: give --kubeconfig FILE, or set $KUBECONFIG"},
		"a missing file":              {filepath.Join(dir, "none"), "", first, "", "none: no such file or directory"},
		"a missing context":           {given, "first", first, "", `context "first" does not exist`},
		"a missing context of no API": {"", "x", "", "", `context "x" does not exist`},
	} {
		t.Setenv("KUBECONFIG", test.env)
		c, err := ConnectAsPerson(test.file, test.context, "relink", slog.Default())
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %s", name, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if is := c.Config(); is.Host != test.host || is.UserAgent != "relink" {
			t.Errorf("%s: %s is asked as %s, want %s", name, is.Host, is.UserAgent, test.host)
		}
	}
}

package kube

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: secret}}]
`

// Connect reports a file that cannot be used. The error does not wait for the first event.
func TestConnect(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, test := range map[string]struct{ text, want string }{
		"no YAML":                    {"{", "error loading config file"},
		"no kubeconfig":              {"kind: Pod\napiVersion: v1\n", `no kind "Pod" is registered`},
		"empty":                      {"", "no configuration has been provided"},
		"another context":            {strings.Replace(aKubeconfig, "current-context: c", "current-context: d", 1), "context was not found for specified context: d"},
		"no CA":                      {strings.Replace(aKubeconfig, "ca.crt", "none.crt", 1), "none.crt: no such file or directory"},
		"a CA without a certificate": {strings.Replace(aKubeconfig, "ca.crt", "kubeconfig", 1), "unable to load root certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c, err := Connect(path, slog.Default()); c != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v, want %q", c, err, test.want)
			}
		})
	}
	if c, err := Connect("/nonexistent/kubelet.conf", slog.Default()); c != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := Connect("", slog.Default()); c != nil || err != nil {
		t.Errorf("outside of a cluster: %v, %v", c, err)
	}
	// A pod without the token of its service account.
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if c, err := Connect("", slog.Default()); c != nil || err != nil {
		t.Errorf("in a pod without a token: %v, %v", c, err)
	}
}

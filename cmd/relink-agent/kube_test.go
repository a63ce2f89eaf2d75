package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error names the flag and the file. A missing file may come later, so systemd must start the agent again.
func TestKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	bad := filepath.Join(t.TempDir(), "kubelet.conf")
	if err := os.WriteFile(bad, []byte("kind: Pod\napiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path  string
		want  string
		retry bool
	}{
		{bad, "; name a file that kubectl takes, such as /etc/kubernetes/kubelet.conf", false},
		{"/nonexistent/kubelet.conf", "no such file or directory; the agent needs it at its start: wait until the node has joined its cluster, or leave the flag out", true},
	} {
		_, err := parse([]string{"--kubeconfig", test.path})
		if err == nil || !strings.HasPrefix(err.Error(), "invalid --kubeconfig "+test.path+": ") || !strings.HasSuffix(err.Error(), test.want) || errors.Is(err, errNoKubeconfig) != test.retry {
			t.Errorf("%v", err)
		}
	}
	if status := start([]string{"--kubeconfig", bad}); status != exitUsage {
		t.Errorf("status %d", status)
	}
	if status := start([]string{"--kubeconfig", "/nonexistent/kubelet.conf"}); status != exitFailed {
		t.Errorf("status %d", status)
	}
}

// Without an API, the agent writes one line, and only at the debug level.
func TestNoAPI(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var log bytes.Buffer
	api, err := connect("", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if api != nil || err != nil || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=DEBUG") {
		t.Errorf("%v, %v, log %q", api, err, &log)
	}
}

func TestNodeName(t *testing.T) {
	t.Setenv(nodeEnv, "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := nodeName(); got != strings.ToLower(host) {
		t.Errorf("%q on %q", got, host)
	}
	t.Setenv(nodeEnv, "node1.example")
	if got := nodeName(); got != "node1.example" {
		t.Errorf("%q", got)
	}
}

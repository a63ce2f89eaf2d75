package services

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// forward gives the namespace the API server at the same address.
func forward(t *testing.T, ns string) {
	t.Helper()
	var l net.Listener
	var err error
	if in := fresh.In(ns, func() { l, err = net.Listen("tcp", apiAddress) }); in != nil || err != nil {
		t.Fatal(in, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // The test has ended.
			}
			go join(c)
		}
	}()
}

func join(c net.Conn) {
	defer func() { _ = c.Close() }()
	to, err := net.Dial("tcp", apiAddress)
	if err != nil {
		return // kube-proxy tries again.
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
	_, _ = io.Copy(c, to)
}

// proxy starts a kube-proxy on the node, and waits until it has written all rules.
func (s *topology) proxy(t *testing.T, a *api, mode string, config m) (end func()) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: %s}}]}`, apiAddress, adminToken)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := m{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": mode, "hostnameOverride": nodeName,
		"clientConnection":   m{"kubeconfig": kubeconfig},
		"conntrack":          m{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}, // Those are of the whole machine.
		"healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
	}
	for key, value := range config {
		all[key] = value
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	end = run(t, s.node, a.programs.Proxy, "--config="+path)
	await(t, 3*time.Minute, "kube-proxy's rules", func() bool { return s.synced(t) })
	return end
}

// synced tells whether kube-proxy has written the rules of both families.
func (s *topology) synced(t *testing.T) bool {
	t.Helper()
	text := fresh.Run(t, s.node, "curl -s 127.0.0.1:10249/metrics | grep ^kubeproxy_sync_proxy_rules_last_timestamp_seconds || true")
	families := 0
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			families++
		}
	}
	return families == 2
}

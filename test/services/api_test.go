package services

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

const (
	apiAddress = "127.0.0.1:6443"
	adminToken = "admin-of-the-test"
)

// api is an API server that allows everything.
type api struct {
	programs Programs
	dir      string
	http     *http.Client
}

// startAPI starts etcd and an API server, and waits until it answers. The end of the test ends both.
func startAPI(t *testing.T) *api {
	t.Helper()
	programs, err := Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := &api{programs: programs, dir: fresh.InMemory(t)}
	// The API server makes its certificate by itself.
	a.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	if err := os.WriteFile(a.path("tokens"), []byte(adminToken+",admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer := a.issuer(t)
	run(t, "", programs.Etcd, "--data-dir="+a.path("etcd"), "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--logger=zap", "--log-level=warn")
	run(t, "", programs.APIServer, "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--secure-port=6443", "--cert-dir="+a.path("cert"),
		"--advertise-address=10.96.255.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range="+serviceCIDRs,
		"--token-auth-file="+a.path("tokens"), "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://test", "--service-account-key-file="+issuer, "--service-account-signing-key-file="+issuer)
	await(t, 3*time.Minute, "the API", func() bool {
		_, status := a.try(http.MethodGet, "/readyz", nil)
		return status == http.StatusOK
	})
	return a
}

// issuer makes the key of service accounts, which the API server wants.
func (a *api) issuer(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(a.path("issuer"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a.path("issuer")
}

func (a *api) path(name string) string { return filepath.Join(a.dir, name) }

// try makes a request. The status is 0 if nobody answers.
func (a *api) try(method, path string, body []byte) (answer []byte, status int) {
	r, err := http.NewRequest(method, "https://"+apiAddress+path, bytes.NewReader(body))
	if err != nil {
		return []byte(err.Error()), 0
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", contentType(method))
	res, err := a.http.Do(r)
	if err != nil {
		return []byte(err.Error()), 0
	}
	defer res.Body.Close()
	answer, _ = io.ReadAll(res.Body)
	return answer, res.StatusCode
}

// put makes an object, or changes a part of it.
func (a *api) put(t *testing.T, method, path string, object any) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if answer, status := a.try(method, path, body); status < 200 || status > 299 {
		t.Fatalf("%s %s: status %d\n%s", method, path, status, answer)
	}
}

// run starts a program in the namespace. It returns what ends the program, which the end of the test does too. If the test fails, the
// end of what it wrote is shown.
func run(t *testing.T, ns, path string, args ...string) (end func()) {
	t.Helper()
	log := &node.Log{}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // Memory is there, and processor time is not.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Linux sends the signal when the thread ends that started the program.
		defer runtime.UnlockOSThread()
		err := start(ns, cmd)
		started <- err
		if err == nil {
			_ = cmd.Wait() // It was killed.
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill() // It may have ended.
		<-ended
	}
	t.Cleanup(func() {
		end()
		if text := log.String(); t.Failed() {
			t.Logf("the end of what %s wrote:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
		}
	})
	return end
}

func start(ns string, cmd *exec.Cmd) error {
	if ns == "" {
		return cmd.Start()
	}
	// Pdeathsig looks at the thread, and the thread of fresh.In ends at once.
	cmd.Path, cmd.Args = "/usr/bin/nsenter", append([]string{"nsenter", "--net=" + ns, cmd.Path}, cmd.Args[1:]...)
	return cmd.Start()
}

func await(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// node makes the Node that kube-proxy looks for its addresses in.
func (a *api) node(t *testing.T) {
	t.Helper()
	a.put(t, http.MethodPost, "/api/v1/nodes", m{"metadata": m{"name": nodeName}, "spec": m{"podCIDRs": []string{"10.244.1.0/24", "fd00:244:1::/64"}}})
	a.put(t, http.MethodPatch, "/api/v1/nodes/"+nodeName+"/status", m{"status": m{"addresses": []m{
		{"type": "InternalIP", "address": nodeAddress.v4}, {"type": "InternalIP", "address": nodeAddress.v6},
	}}})
}

// service makes a Service of the type LoadBalancer, which has a NodePort and a ClusterIP too.
func (a *api) service(t *testing.T, s service) {
	t.Helper()
	ports := []m{
		{"name": "tcp", "protocol": "TCP", "port": s.port, "nodePort": s.nodePort, "targetPort": s.targetPort},
		{"name": "udp", "protocol": "UDP", "port": s.port, "nodePort": s.nodePort, "targetPort": s.targetPort},
	}
	spec := m{
		"type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "ipFamilies": []string{"IPv4", "IPv6"}, "clusterIP": s.cluster.v4,
		"clusterIPs": []string{s.cluster.v4, s.cluster.v6}, "externalTrafficPolicy": s.policy, "ports": ports,
	}
	if s.policy == "Local" {
		spec["healthCheckNodePort"] = s.nodePort + 1000 // The API would take any one, such as that of a Service to come.
	}
	a.put(t, http.MethodPost, "/api/v1/namespaces/default/services", m{"metadata": m{"name": s.name}, "spec": spec})
	a.put(t, http.MethodPatch, "/api/v1/namespaces/default/services/"+s.name+"/status", m{"status": m{"loadBalancer": m{"ingress": []m{
		{"ip": s.balancer.v4}, {"ip": s.balancer.v6},
	}}}})
	for family, of := range map[string]int{"IPv4": 4, "IPv6": 6} {
		all := []m{s.endpoint(s.backend.of(of), s.on)}
		if s.second != (address{}) {
			all = append(all, s.endpoint(s.second.of(of), otherName))
		}
		a.put(t, http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", m{
			"metadata":    m{"name": s.name + "-" + strings.ToLower(family), "labels": m{"kubernetes.io/service-name": s.name}},
			"addressType": family, "endpoints": all,
			"ports": []m{{"name": "tcp", "protocol": "TCP", "port": s.targetPort}, {"name": "udp", "protocol": "UDP", "port": s.targetPort}},
		})
	}
}

func (s service) endpoint(at, on string) m {
	return m{"addresses": []string{at}, "conditions": m{"ready": true}, "nodeName": on}
}

func contentType(method string) string {
	if method == http.MethodPatch {
		return "application/merge-patch+json"
	}
	return "application/json"
}

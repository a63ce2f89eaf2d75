package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const (
	// Address is where the API server listens. It is of the network namespace in which the server was started.
	Address = "127.0.0.1:6443"
	// EtcdURL is where etcd listens.
	EtcdURL = "http://127.0.0.1:2379"
	// AdminToken is the token of an administrator.
	AdminToken = "admin-of-the-test"
)

// API is what makes an API, and what an administrator asks it. The caller starts Etcd with EtcdArgs, then APIServer with ServerArgs.
type API struct {
	Programs
	Keys *Authority
	// HTTP trusts the API server.
	HTTP *http.Client
	dir  string
}

// New prepares an API with all its files in the directory. It starts nothing.
func New(ctx context.Context, dir string) (*API, error) {
	programs, err := Prepare(ctx)
	if err != nil {
		return nil, err
	}
	a := &API{Programs: programs, dir: dir}
	if a.Keys, err = NewAuthority(dir); err != nil {
		return nil, err
	}
	if err := a.Keys.Issue("server", pkix.Name{CommonName: "kube-apiserver"}); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Keys.Cert)
	a.HTTP = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return a, os.WriteFile(a.Path("tokens"), []byte(AdminToken+",admin,1,system:masters\n"), 0o600)
}

// Path returns the path of one of the API's files.
func (a *API) Path(name string) string { return filepath.Join(a.dir, name) }

// EtcdArgs are the arguments of etcd with its data in the directory.
func (a *API) EtcdArgs(dir string) []string {
	return []string{
		"--data-dir=" + dir, "--listen-client-urls=" + EtcdURL, "--advertise-client-urls=" + EtcdURL,
		"--listen-peer-urls=http://127.0.0.1:2380", "--logger=zap", "--log-level=warn",
	}
}

// ServerArgs are the arguments of the API server.
func (a *API) ServerArgs() []string {
	return []string{
		"--etcd-servers=" + EtcdURL, "--bind-address=127.0.0.1", "--secure-port=6443",
		"--advertise-address=10.96.255.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + a.Path("server.crt"), "--tls-private-key-file=" + a.Path("server.key"), "--client-ca-file=" + a.Path("ca.crt"),
		"--token-auth-file=" + a.Path("tokens"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--disable-admission-plugins=ServiceAccount", // No controller makes the accounts of namespaces.
		"--service-account-issuer=https://test", "--service-account-key-file=" + a.Path("ca.crt"), "--service-account-signing-key-file=" + a.Path("ca.key"),
		"--api-audiences=https://test", "--max-requests-inflight=400",
	}
}

// Ready says whether the API answers.
func (a *API) Ready() bool {
	_, status := a.Try(http.MethodGet, "/readyz", "", nil)
	return status == http.StatusOK
}

// Try makes a request as the administrator. The status is 0 if nobody answers.
func (a *API) Try(method, path, contentType string, body []byte) (answer []byte, status int) {
	r, err := http.NewRequest(method, "https://"+Address+path, bytes.NewReader(body))
	if err != nil {
		return []byte(err.Error()), 0
	}
	r.Header.Set("Authorization", "Bearer "+AdminToken)
	r.Header.Set("Content-Type", contentType)
	res, err := a.HTTP.Do(r)
	if err != nil {
		return []byte(err.Error()), 0
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ = io.ReadAll(res.Body)
	return answer, res.StatusCode
}

// Ask makes a request as the administrator, which must succeed.
func (a *API) Ask(method, path, contentType string, body []byte) ([]byte, error) {
	answer, status := a.Try(method, path, contentType, body)
	if status < 200 || status > 299 {
		return nil, fmt.Errorf("%s %s: status %d\n%s", method, path, status, answer)
	}
	return answer, nil
}

// Collections are the collections of the kinds in deploy/.
var Collections = map[string]string{
	"Namespace": "/api/v1/namespaces", "ServiceAccount": "/api/v1/namespaces/relink-system/serviceaccounts",
	"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"DaemonSet": "/apis/apps/v1/namespaces/relink-system/daemonsets", "Deployment": "/apis/apps/v1/namespaces/relink-system/deployments",
	"Role":                             "/apis/rbac.authorization.k8s.io/v1/namespaces/relink-system/roles",
	"RoleBinding":                      "/apis/rbac.authorization.k8s.io/v1/namespaces/relink-system/rolebindings",
	"CustomResourceDefinition":         "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"FlowSchema":                       "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
	"PriorityLevelConfiguration":       "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
}

// An Object is one of what kustomize has built.
type Object interface {
	GetKind() string
	GetNamespace() string
	GetName() string
	AsYAML() ([]byte, error)
}

// Apply applies an object. The API refuses keys that it does not know.
func (a *API) Apply(o Object) error {
	text, err := o.AsYAML()
	if err != nil || Collections[o.GetKind()] == "" {
		return fmt.Errorf("%s: no collection is known of it: %w", o.GetKind(), err)
	}
	_, err = a.Ask(http.MethodPatch, Collections[o.GetKind()]+"/"+o.GetName()+"?fieldManager=test&fieldValidation=Strict", "application/apply-patch+yaml", text)
	return err
}

// Config writes a kubeconfig with the credentials of user, and returns its path.
func (a *API) Config(server, file, user string) (string, error) {
	cert, err := os.ReadFile(a.Path("ca.crt"))
	if err != nil {
		return "", err
	}
	ca := base64.StdEncoding.EncodeToString(cert)
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '%s', certificate-authority-data: %s}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: %s}]\n", server, ca, user)
	return a.Path(file), os.WriteFile(a.Path(file), []byte(text), 0o600)
}

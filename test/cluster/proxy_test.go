package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy is between the agent and the API. It passes everything on, unless a rule answers in place of the API.
type proxy struct {
	*httptest.Server
	to *httputil.ReverseProxy

	mu sync.Mutex
	// rule returns what answers a request, nil for the API.
	rule func(*http.Request) http.HandlerFunc
	// held is closed when watches may tell again. It is nil while nothing holds them.
	held chan struct{}
	// told is all that watches have told.
	told bytes.Buffer
}

// newProxy starts a proxy before the API. The end of the test ends it.
func newProxy(t *testing.T, a *api) *proxy {
	t.Helper()
	a.keys.issue(t, "proxy", pkix.Name{CommonName: "proxy"})
	cert, err := tls.LoadX509KeyPair(a.path("proxy.crt"), a.path("proxy.key"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: apiAddress})}
	behind := a.http.Transport.(*http.Transport).Clone()
	behind.ForceAttemptHTTP2 = true
	p.to.Transport, p.to.FlushInterval, p.to.ErrorLog = behind, -1, log.New(io.Discard, "", 0)
	p.to.ErrorHandler = func(w http.ResponseWriter, r *http.Request, _ error) { hangUp(w, r) } // As if the agent had asked the API itself.
	p.Server = httptest.NewUnstartedServer(p)
	p.TLS, p.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{cert}}, true
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	t.Cleanup(func() { p.CloseClientConnections(); p.Close() })
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	if rule != nil {
		if answer := rule(r); answer != nil {
			answer(w, r)
			return
		}
	}
	if r.URL.Query().Has("watch") {
		w = gate{w, p, r}
	}
	p.to.ServeHTTP(w, r)
}

// gate is the answer to a watch. Nothing passes while the proxy holds watches.
type gate struct {
	http.ResponseWriter
	proxy   *proxy
	request *http.Request
}

func (g gate) Write(b []byte) (int, error) {
	g.proxy.mu.Lock()
	held := g.proxy.held
	g.proxy.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-g.request.Context().Done():
		}
	}
	n, err := g.ResponseWriter.Write(b)
	g.proxy.mu.Lock()
	g.proxy.told.Write(b[:n])
	g.proxy.mu.Unlock()
	return n, err
}

// shows waits until the watch has told the agent of the pod, and the agent has read that.
func (p *proxy) shows(t *testing.T, pod made) {
	t.Helper()
	await(t, 10*time.Second, "the watch of "+pod.name, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return bytes.Contains(p.told.Bytes(), []byte(pod.uid))
	})
	time.Sleep(200 * time.Millisecond)
}

// Unwrap is for http.ResponseController, which flushes.
func (g gate) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// hold makes watches silent until release is called. The agent does not notice.
func (p *proxy) hold() (release func()) {
	held := make(chan struct{})
	p.mu.Lock()
	p.held = held
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(held)
	}
}

// answer sets the rule until the end of the test.
func (p *proxy) answer(t *testing.T, rule func(*http.Request) http.HandlerFunc) {
	set := func(rule func(*http.Request) http.HandlerFunc) {
		p.mu.Lock()
		p.rule = rule
		p.mu.Unlock()
	}
	set(rule)
	t.Cleanup(func() { set(nil) })
}

// about is a rule for all requests that have the part in their path.
func about(part string, answer http.HandlerFunc) func(*http.Request) http.HandlerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if strings.Contains(r.URL.Path, part) {
			return answer
		}
		return nil
	}
}

// The answers of an API, or of a proxy before it, that says nothing about an object.

func hangUp(http.ResponseWriter, *http.Request)     { panic(http.ErrAbortHandler) }
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func failing(w http.ResponseWriter, _ *http.Request) {
	status(w, http.StatusInternalServerError, `"message":"etcdserver: request timed out"`)
}

func forbidding(w http.ResponseWriter, _ *http.Request) {
	status(w, http.StatusForbidden, `"reason":"Forbidden","message":"statefulsets.apps is forbidden"`)
}

// page is what a load balancer says of a cluster that it does not know.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("<html><body>404 page not found</body></html>"))
}

// elsewhere is a 404 of the API about another object.
func elsewhere(w http.ResponseWriter, _ *http.Request) {
	status(w, http.StatusNotFound, `"reason":"NotFound","message":"namespaces \"shop\" not found","details":{"name":"shop","kind":"namespaces"}`)
}

func status(w http.ResponseWriter, code int, rest string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure",` + rest + `}`))
}

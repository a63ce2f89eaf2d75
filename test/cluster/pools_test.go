package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
)

const (
	pools  = "/apis/" + pool.Group + "/" + pool.Version + "/addresspools"
	blocks = "/apis/" + pool.Group + "/" + pool.Version + "/addressblocks"
	claims = "/apis/" + pool.Group + "/" + pool.Version + "/addressclaims"
)

// What deploy/ has for shared pools does what it says, on a real API, and so do nodes that share one.
func TestPools(t *testing.T) {
	a, users := newPoolCluster(t)
	a.blocksInUse(t, users) // Whichever part runs: it ends a policy.
	t.Run("pools", func(t *testing.T) { a.poolSchema(t) })
	t.Run("blocks", func(t *testing.T) { a.blockSchema(t) })
	t.Run("claims", func(t *testing.T) { a.claimSchema(t) })
	t.Run("they are selected by fields", func(t *testing.T) { a.selected(t) })
	t.Run("what a node does with blocks", func(t *testing.T) { a.blockPolicy(t, users) })
	t.Run("what a node does with claims", func(t *testing.T) { a.claimPolicy(t, users) })
	t.Run("what a node does with pools", func(t *testing.T) { a.poolPolicy(t, users) })
	t.Run("who removes the finalizer of a pool", func(t *testing.T) { a.finalizerPolicy(t, users) })
	t.Run("a pool in use is deleted on purpose only", func(t *testing.T) { a.poolsInUse(t, users) })
	t.Run("in another namespace", func(t *testing.T) { a.elsewhere(t, users) })
	t.Run("who the policies bind", func(t *testing.T) { a.whoIsBound(t, users) })
	t.Run("agents with all rights", func(t *testing.T) { a.withAllRights(t, users) })
	t.Run("blocks of nodes that do all sorts of things", func(t *testing.T) { a.poolLife(t, users) })
	t.Run("the largest block", func(t *testing.T) { a.largest(t, users) })
	t.Run("blocks that a node makes up", func(t *testing.T) { a.madeUp(t, users) })
	t.Run("flows", func(t *testing.T) { a.flows(t, users) })
	t.Run("the controller is restricted", func(t *testing.T) { a.restricted(t) })
	t.Run("each rule is needed", func(t *testing.T) { a.eachPoolRule(t, users) })
	t.Run("nodes share a pool", func(t *testing.T) { a.share(t, users) })
	t.Run("an ADD gives up while the API is busy", func(t *testing.T) { a.busy(t, users) })
	t.Run("a node that is deleted", func(t *testing.T) { a.gone(t, users) })
	t.Run("what people see", func(t *testing.T) { a.shown(t, users) })
	t.Run("a status is no change", func(t *testing.T) { a.statusIsNoChange(t, users) })
}

// newPoolCluster is an API with all that shared pools need, and those who have to do with them.
func newPoolCluster(t *testing.T) (*api, map[string]user) {
	t.Helper()
	fresh.Run(t, "", "ip link set lo up")
	a := startAPI(t)
	a.apply(t, "examples/pools")
	a.apply(t, "pools/nodes")
	users := a.poolUsers(t)
	a.ready(t, users)
	for _, name := range []string{"node1", "node2", "node3", "controller"} {
		a.client(t, name, users[name])
	}
	return a, users
}

// user is somebody who asks the API.
type user struct {
	http  *http.Client
	token string
}

// poolUsers are those who have to do with pools, by a name of the test. NODE is the agent of the DaemonSet there, and NODE's unit one with
// the kubelet's certificate.
func (a *api) poolUsers(t *testing.T) map[string]user {
	t.Helper()
	all := map[string]user{
		"admin":      {a.http, adminToken},
		"controller": {a.http, a.tokenOf(t, "relink-controller", nil)},
		"unbound":    {a.http, a.tokenOf(t, "relink-agent", nil)},
		"stranger":   a.certified(t, "stranger", "system:nodes"),
		"operator":   a.operator(t),
		"viewer":     a.viewer(t),
	}
	for _, node := range []string{"node1", "node2", "node3"} {
		a.addNode(t, all, node)
		all[node+"'s unit"] = a.certified(t, "system:node:"+node, "system:nodes")
	}
	return all
}

// ready waits until the API knows the rights and the policies.
func (a *api) ready(t *testing.T, users map[string]user) {
	t.Helper()
	users["admin"].must(t, http.MethodPost, pools, poolObject(lan()), nil)
	a.rangesPolicy(t, true)
	for _, who := range []string{"unbound", "stranger"} {
		for _, try := range []struct {
			method, path string
			object       m
		}{
			{http.MethodPatch, pools + "/lan", m{"spec": m{"paused": true}}},
			{http.MethodPost, blocks, blockObject(taken(0, node1))},
			{http.MethodPost, claims, claimObject(claimOf(node1, "web"))},
		} {
			await(t, 20*time.Second, "the policy of "+try.path, func() bool {
				said, _ := users[who].send(t, try.method, try.path+"?dryRun=All", try.object)
				return strings.Contains(said, "is of no node")
			})
		}
	}
}

// tokenOf returns a token of a service account, for the object if it is bound to one.
func (a *api) tokenOf(t *testing.T, account string, bound m) string {
	t.Helper()
	var request struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	spec := m{}
	if bound != nil {
		spec["boundObjectRef"] = bound
	}
	body := m{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
	a.create(t, where["ServiceAccount"]+"/"+account+"/token", body, &request)
	return request.Status.Token
}

// certified is a user with a certificate.
func (a *api) certified(t *testing.T, name, group string) user {
	t.Helper()
	file := strings.ReplaceAll(name, ":", "-")
	a.keys.issue(t, file, pkix.Name{CommonName: name, Organization: []string{group}})
	cert, err := tls.LoadX509KeyPair(a.path(file+".crt"), a.path(file+".key"))
	if err != nil {
		t.Fatal(err)
	}
	transport := a.http.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{cert}
	return user{&http.Client{Timeout: 5 * time.Second, Transport: transport}, ""}
}

// send makes a request of the user, and returns what the API says.
func (u user) send(t tester, method, path string, object any) (said string, answer *http.Response) {
	t.Helper()
	r, err := http.NewRequest(method, "https://"+apiAddress+path, bytes.NewReader(text(t, object)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if u.token != "" {
		r.Header.Set("Authorization", "Bearer "+u.token)
	}
	if answer, err = u.http.Do(r); err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var refused metav1.Status
	if json.Unmarshal(b, &refused) == nil && refused.Kind == "Status" {
		return refused.Message, answer
	}
	return string(b), answer
}

// must is send that succeeds. It fills into what the API has made.
func (u user) must(t tester, method, path string, object, into any) {
	t.Helper()
	said, answer := u.send(t, method, path, object)
	if answer.StatusCode > 299 {
		t.Fatalf("%s %s: status %d: %s", method, path, answer.StatusCode, said)
	}
	if into != nil {
		fill(t, said, into)
	}
}

// fill fills what the API has made into an object.
func fill(t tester, said string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(said), into); err != nil {
		t.Fatal(err)
	}
}

// tester is a test, or a draw of one.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func text(t tester, object any) []byte {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The objects of package pool, as the API takes them.

func poolObject(p pool.Pool) m   { return kindOf("AddressPool", p) }
func blockObject(b pool.Block) m { return kindOf("AddressBlock", b) }
func claimObject(c pool.Claim) m { return kindOf("AddressClaim", c) }

func kindOf(kind string, object any) (o m) {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err) // Plain data.
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // Epochs are long.
	if err := d.Decode(&o); err != nil {
		panic(err)
	}
	o["apiVersion"], o["kind"] = pool.Group+"/"+pool.Version, kind
	return o
}

package objects

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	sets    = Kind{"apps", "StatefulSet", "statefulsets", []string{"v1"}, Whole}
	kruises = Kind{"apps.kruise.io", "StatefulSet", "statefulsets", []string{"v1beta1", "v1alpha1"}, Whole}
)

// asked are the requests that a server has got.
type asked struct {
	mu  sync.Mutex
	all []string
}

// wants fails the test unless the requests were these.
func (a *asked) wants(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.all, want) {
		t.Errorf("requests %q, want %q", a.all, want)
	}
}

// served returns a client of a server that answers so.
func served(t *testing.T, answer http.HandlerFunc) (*Client, *asked) {
	t.Helper()
	a := &asked{}
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.all = append(a.all, r.Method+" "+r.URL.Path)
		a.mu.Unlock()
		answer(to, r)
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

const (
	notThere = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no web","reason":"NotFound","details":{"name":"web","group":%q,"kind":"statefulsets"},"code":404}`
	there    = `{"metadata":{"namespace":"shop","name":"web","uid":"u"}}`
)

// Only the API's own answer about the object proves that it does not exist.
func TestWhatAnAnswerMeans(t *testing.T) {
	const status = `{"kind":%q,"apiVersion":%q,"status":%q,"message":"statefulsets \"web\" not found","reason":%q,"details":%s,"code":404}`
	const details = `{"name":"web","group":"apps","kind":"statefulsets"}`
	own := fmt.Sprintf(status, "Status", "v1", "Failure", "NotFound", details)
	for name, test := range map[string]struct {
		code        int
		contentType string
		body        string
		is          error
		want        string
	}{
		"it is there":                   {200, "application/json", there, nil, ""},
		"it is not there":               {404, "application/json", own, ErrNotFound, `the Kubernetes API answers that it does not exist: statefulsets "web" not found`},
		"its words in another type":     {404, "text/plain", own, ErrNotServed, "does not serve it"},
		"no such kind":                  {404, "text/plain; charset=utf-8", "404 page not found\n", ErrNotServed, "the Kubernetes API does not serve it: /apis/apps/v1 has no statefulsets"},
		"a proxy's page":                {404, "text/html", "<html><h1>404 Not Found</h1></html>", ErrNotServed, "does not serve it"},
		"an empty 404":                  {404, "", "", ErrNotServed, "does not serve it"},
		"JSON of another":               {404, "application/json", `{"type":"error","status":"404","message":"not found"}`, ErrNotServed, "does not serve it"},
		"another kind of answer":        {404, "application/json", fmt.Sprintf(status, "Error", "v1", "Failure", "NotFound", details), ErrNotServed, "does not serve it"},
		"another version of it":         {404, "application/json", fmt.Sprintf(status, "Status", "v2", "Failure", "NotFound", details), ErrNotServed, "does not serve it"},
		"a success with 404":            {404, "application/json", fmt.Sprintf(status, "Status", "v1", "Success", "NotFound", details), ErrNotServed, "does not serve it"},
		"another reason":                {404, "application/json", fmt.Sprintf(status, "Status", "v1", "Failure", "Gone", details), ErrNotServed, "does not serve it"},
		"no details":                    {404, "application/json", fmt.Sprintf(status, "Status", "v1", "Failure", "NotFound", "null"), ErrNotServed, "does not serve it"},
		"another name":                  {404, "application/json", strings.Replace(own, `"name":"web"`, `"name":"db"`, 1), ErrNotServed, "does not serve it"},
		"another group":                 {404, "application/json", strings.Replace(own, `"group":"apps"`, `"group":"x"`, 1), ErrNotServed, "does not serve it"},
		"another resource":              {404, "application/json", strings.Replace(own, `"kind":"statefulsets"`, `"kind":"namespaces"`, 1), ErrNotServed, "does not serve it"},
		"the same with 410":             {410, "application/json", own, nil, `answers with an error: statefulsets "web" not found (status 410)`},
		"refused":                       {403, "application/json", strings.Replace(own, "not found", "is forbidden", 1), nil, `refuses: statefulsets "web" is forbidden (status 403). This account needs the rule {apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["get"]}, which a kubelet has only if you bind it to the group system:nodes`},
		"refused by a policy":           {403, "application/json", strings.Replace(own, "not found", "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", 1), nil, `refuses: statefulsets "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no (status 403)`},
		"refused by a webhook":          {403, "application/json", strings.Replace(own, `statefulsets \"web\" not found`, "admission webhook w denied the request: no", 1), nil, "refuses: admission webhook w denied the request: no (status 403)"},
		"refused by a proxy":            {403, "text/html", "<html>", nil, "refuses: status 403, not in the API's own form"},
		"not who it says":               {401, "application/json", own, nil, "answers with an error"},
		"another UID":                   {422, "application/json", fmt.Sprintf(status, "Status", "v1", "Failure", "Invalid", `{"causes":[{"reason":"FieldValueInvalid","field":"metadata.uid"}]}`), ErrConflict, "(status 422)"},
		"a wrong field":                 {422, "application/json", fmt.Sprintf(status, "Status", "v1", "Failure", "Invalid", `{"causes":[{"reason":"FieldValueInvalid","field":"spec"}]}`), nil, "refuses: "},
		"too many requests":             {429, "application/json", "", nil, "status 429, not in the API's own form"},
		"broken":                        {500, "application/json", own, nil, "(status 500)"},
		"away":                          {503, "text/plain", "no endpoints available", nil, "status 503"},
		"a proxy that logs in":          {200, "text/html", "<html>log in</html>", nil, "cannot be read"},
		"an empty answer":               {200, "application/json", "", nil, "cannot be read"},
		"an empty object":               {200, "application/json", "{}", nil, "the answer of the Kubernetes API is not about statefulsets shop/web"},
		"no UID":                        {200, "application/json", `{"metadata":{"namespace":"shop","name":"web"}}`, nil, "is not about"},
		"another object":                {200, "application/json", `{"metadata":{"namespace":"shop","name":"db","uid":"u"}}`, nil, "is not about"},
		"an object of another":          {200, "application/json", `{"metadata":{"namespace":"bank","name":"web","uid":"u"}}`, nil, "is not about"},
		"a failure with the status 200": {200, "application/json", own, nil, "is not about"},
	} {
		t.Run(name, func(t *testing.T) {
			c, asked := served(t, func(to http.ResponseWriter, _ *http.Request) {
				to.Header().Set("Content-Type", test.contentType)
				to.WriteHeader(test.code)
				_, _ = io.WriteString(to, test.body)
			})
			got, err := c.Read(t.Context(), sets, "shop", "web")
			if test.want == "" {
				if err != nil || got.Metadata.UID != "u" {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			for _, of := range []error{ErrNotFound, ErrNotServed, ErrConflict} {
				if want := test.is != nil && errors.Is(test.is, of); errors.Is(err, of) != want {
					t.Errorf("%v is %v", err, of)
				}
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if denied := strings.Contains(test.want, " denied "); denied && strings.Contains(err.Error(), "needs the rule") {
				t.Errorf("%v, want no rule: the account has it", err)
			}
			asked.wants(t, "GET /apis/apps/v1/namespaces/shop/statefulsets/web")
		})
	}
}

// A version that is not served says nothing. The next one is asked then, and only then.
func TestVersions(t *testing.T) {
	const newer, older = "/apis/apps.kruise.io/v1beta1/namespaces/shop/statefulsets/web", "/apis/apps.kruise.io/v1alpha1/namespaces/shop/statefulsets/web"
	for name, test := range map[string]struct {
		newer, older int
		want         error
		asked        []string
	}{
		"the newer one has it":  {200, 200, nil, []string{"GET " + newer}},
		"the newer one has not": {404, 200, ErrNotFound, []string{"GET " + newer}},
		"an old OpenKruise":     {0, 200, nil, []string{"GET " + newer, "GET " + older}},
		"an old one has not":    {0, 404, ErrNotFound, []string{"GET " + newer, "GET " + older}},
		"no OpenKruise":         {0, 0, ErrNotServed, []string{"GET " + newer, "GET " + older}},
	} {
		t.Run(name, func(t *testing.T) {
			c, asked := served(t, func(to http.ResponseWriter, r *http.Request) {
				switch code := map[string]int{newer: test.newer, older: test.older}[r.URL.Path]; code {
				case 0:
					http.NotFound(to, r)
				case http.StatusNotFound:
					to.Header().Set("Content-Type", "application/json")
					to.WriteHeader(code)
					fmt.Fprintf(to, notThere, "apps.kruise.io")
				default:
					to.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(to, there)
				}
			})
			if _, err := c.Read(t.Context(), kruises, "shop", "web"); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			asked.wants(t, test.asked...)
		})
	}
}

// A name that leads elsewhere is not asked for.
func TestANameThatIsAPath(t *testing.T) {
	c, asked := served(t, http.NotFound)
	for _, name := range []string{"", ".", "..", "../../secrets/x", "a/b", "a%2fb"} {
		if _, err := c.Read(t.Context(), sets, "shop", name); err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotServed) {
			t.Errorf("%q: %v", name, err)
		}
	}
	asked.wants(t)
}

// The API's flow control refuses a request in plain text. Nothing was done, and the API is not away.
func TestTooManyRequests(t *testing.T) {
	for name, body := range map[string]string{
		"of the flow control": "Too many requests, please try again later.",
		"of the storage":      `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","code":429}`,
	} {
		c, _ := served(t, func(to http.ResponseWriter, _ *http.Request) {
			to.Header().Set("Content-Type", "application/json")
			to.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(to, body)
		})
		_, err := NewPoolAPI(c).Pools(t.Context())
		if !errors.Is(err, pool.ErrBusy) || errors.Is(err, pool.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

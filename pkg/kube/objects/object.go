package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	// ErrNotFound says that the API itself has answered that the object does not exist. It is a proof.
	ErrNotFound = errors.New("the Kubernetes API answers that it does not exist")
	// ErrNotServed says that nobody serves the object's kind: a definition or an aggregated API is missing, or a proxy
	// has answered. It proves nothing about the object.
	ErrNotServed = errors.New("the Kubernetes API does not serve it")
	// ErrRefused says that the account has no right to ask.
	ErrRefused = errors.New("the Kubernetes API refuses")
	// ErrConflict says that somebody else has changed the object since it was read.
	ErrConflict = errors.New("somebody has changed it meanwhile")
	// ErrBusy says that the API has not looked at the request: it has too many.
	ErrBusy = errors.New("the Kubernetes API has too many requests")
)

// Kind is where the API has the objects of a kind.
type Kind struct {
	// Group and Name are as in attachment.Owner.
	Group, Name string
	Resource    string
	// Versions are tried one after the other, until one is served.
	Versions []string
	// Accept is what to ask for: MetadataOnly if nothing else counts.
	Accept string
}

// What to ask for of an object.
const (
	Whole        = "application/json"
	MetadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// Object is what the API says about an object.
type Object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
	Status   json.RawMessage   `json:"status"`
}

// Read returns the object as it is now. Without a resource version in the request, the API asks its store, and not its
// cache. The error matches ErrNotFound or ErrNotServed.
func (c *Client) Read(ctx context.Context, k Kind, namespace, name string) (object Object, err error) {
	for _, version := range k.Versions {
		object, err = c.readVersion(ctx, k, version, namespace, name)
		if !errors.Is(err, ErrNotServed) {
			return object, err
		}
	}
	return object, err
}

func (c *Client) readVersion(ctx context.Context, k Kind, version, namespace, name string) (Object, error) {
	var code int
	body, err := c.api.Get().AbsPath(Root(k.Group, version)).NamespaceIfScoped(namespace, namespace != "").Resource(k.Resource).Name(name).
		SetHeader("Accept", k.Accept).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	if err := checkAnswer(request{k, version, name, "get", k.Resource}, code, body, err); err != nil {
		return Object{}, err
	}
	var object Object
	if err := json.Unmarshal(body, &object); err != nil {
		return Object{}, fmt.Errorf("the answer of the Kubernetes API about %s %s cannot be read: %w", k.Resource, name, err)
	}
	// A proxy can answer with anything. Nobody is gone because of that.
	if m := object.Metadata; m.Name != name || m.Namespace != namespace || m.UID == "" {
		return Object{}, fmt.Errorf("the answer of the Kubernetes API is not about %s %s/%s", k.Resource, namespace, name)
	}
	return object, nil
}

// PatchStatus merges the change into the status of the object. The change has the UID and the resource version of what was read.
// The error matches ErrConflict if the object is not that one any more.
func (c *Client) PatchStatus(ctx context.Context, k Kind, namespace, name string, change []byte) error {
	var code int
	version := k.Versions[0]
	body, err := c.api.Patch(types.MergePatchType).AbsPath(Root(k.Group, version)).NamespaceIfScoped(namespace, namespace != "").Resource(k.Resource).Name(name).
		SubResource("status").SetHeader("Accept", k.Accept).Body(change).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	return checkAnswer(request{k, version, name, "patch", k.Resource + "/status"}, code, body, err)
}

// ReadPath reads what the API says about itself at the path. The error matches ErrNotServed if it has nothing there.
func (c *Client) ReadPath(ctx context.Context, path string, into any) error {
	var code int
	body, err := c.api.Get().AbsPath(path).SetHeader("Accept", Whole).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	if err := checkAnswer(request{verb: "get", right: path}, code, body, err); err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Root is the path of a group's version.
func Root(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// request is what the API was asked.
type request struct {
	Kind
	version string
	// object is the name of the object.
	object, verb string
	// right is what a rule that allows the request names: a resource, or a path if the kind is none.
	right string
}

// kubeletResources are resources that a kubelet may read without the group system:nodes.
var kubeletResources = []string{"pods", nodes.Resource, nodeLeases.Resource}

// rule is what a ClusterRole must have for the request.
func (r request) rule() string {
	if r.Resource == "" {
		return fmt.Sprintf("{nonResourceURLs: [%q], verbs: [%q]}", r.right, r.verb)
	}
	rule := fmt.Sprintf("{apiGroups: [%q], resources: [%q], verbs: [%q]}", r.Group, r.right, r.verb)
	if !slices.Contains(kubeletResources, r.Resource) && r.Group != pool.Group {
		rule += ", which a kubelet has only if you bind it to the group system:nodes"
	}
	return rule
}

// checkAnswer returns nil if the request has succeeded, and otherwise what the answer means.
//
// client-go makes the same error of a 404 of the API about the object and of a 404 about anything else. Only a Status that
// names the object is a proof.
func checkAnswer(r request, code int, body []byte, err error) error {
	if status := apierrors.APIStatus(nil); code == 0 && errors.As(err, &status) {
		code, body = int(status.Status().Code), nil // client-go keeps no body of a type that it does not know.
	}
	var s metav1.Status
	isStatus := json.Unmarshal(body, &s) == nil && s.Kind == "Status" && s.APIVersion == "v1" && s.Status == metav1.StatusFailure
	switch {
	case err == nil:
		return nil
	case code == 0:
		return fmt.Errorf("the Kubernetes API does not answer: %w", err)
	case code == http.StatusNotFound && isStatus && s.Reason == metav1.StatusReasonNotFound && s.Details != nil &&
		s.Details.Name == r.object && s.Details.Group == r.Group && s.Details.Kind == r.Resource:
		return fmt.Errorf("%w: %s", ErrNotFound, s.Message)
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %s has no %s", ErrNotServed, Root(r.Group, r.version), r.Resource)
	case code == http.StatusForbidden && isStatus && deniedByPolicy(s.Message):
		return fmt.Errorf("%w: %s", ErrRefused, statusText(isStatus, s, code))
	case code == http.StatusForbidden:
		return fmt.Errorf("%w: %s. This account needs the rule %s", ErrRefused, statusText(isStatus, s, code), r.rule())
	case code == http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrConflict, statusText(isStatus, s, code))
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", ErrBusy, statusText(isStatus, s, code))
	}
	return fmt.Errorf("the Kubernetes API answers with an error: %s", statusText(isStatus, s, code))
}

// deniedByPolicy says whether a policy or a webhook refuses what the request does. The account has the right to do it then, and no rule
// would help.
func deniedByPolicy(message string) bool {
	return strings.Contains(message, " denied request: ") || strings.Contains(message, " denied the request")
}

// statusText are what the API says, or the status of an answer that is not the API's own.
func statusText(isStatus bool, s metav1.Status, code int) string {
	if isStatus && s.Message != "" {
		return fmt.Sprintf("%s (status %d)", s.Message, code)
	}
	return fmt.Sprintf("status %d, not in the API's own form", code)
}

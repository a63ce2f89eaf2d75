package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/pool"
)

// What an answer means is the same for all objects.
var (
	// ErrNotFound is a proof: the API itself has answered that the object does not exist.
	ErrNotFound = pool.ErrNotFound
	// ErrRefused says that the account has no right to ask.
	ErrRefused = pool.ErrRefused
	// ErrConflict says that somebody else has changed the object since it was read.
	ErrConflict = pool.ErrConflict
	// ErrNotServed says that nobody serves the object's kind: a definition or an aggregated API is missing, or a proxy
	// has answered. It proves nothing about the object.
	ErrNotServed = errors.New("the Kubernetes API does not serve it")
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
		err = c.send(ctx, request{Kind: k, version: version, verb: "get", namespace: namespace, name: name}, &object)
		if !errors.Is(err, ErrNotServed) {
			break
		}
	}
	return object, err
}

// PatchStatus merges the change into the status of the object. The change has the UID and the resource version of what was read.
// The error matches ErrConflict if the object is not that one any more.
func (c *Client) PatchStatus(ctx context.Context, k Kind, namespace, name string, change any) error {
	_, err := c.do(ctx, request{Kind: k, version: k.Versions[0], verb: "patch", namespace: namespace, name: name, subresource: "status", body: change})
	return err
}

// PatchCondition sets one condition in the status of a pod or a node. Other conditions stay as they are. The error matches ErrConflict if
// the object has another UID.
func (c *Client) PatchCondition(ctx context.Context, k Kind, namespace, name string, uid types.UID, condition any) (changed Object, err error) {
	change := map[string]any{"metadata": map[string]any{"uid": uid}, "status": map[string]any{"conditions": []any{condition}}}
	r := request{Kind: k, version: k.Versions[0], verb: "patch", namespace: namespace, name: name, subresource: "status", body: change, patch: types.StrategicMergePatchType}
	err = c.send(ctx, r, &changed)
	return changed, err
}

// ReadPath reads what the API says about itself at the path. The error matches ErrNotServed if it has nothing there.
func (c *Client) ReadPath(ctx context.Context, location string, into any) error {
	response, err := c.do(ctx, request{Kind: Kind{Accept: Whole}, verb: "get", path: location})
	if err != nil {
		return err
	}
	return json.Unmarshal(response, into)
}

// Root is the path of a group's version.
func Root(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// methods are the HTTP methods of the verbs.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
}

// request is what the API is asked.
type request struct {
	Kind
	version, verb, namespace, name, subresource string
	// path is where the API says something about itself. The request has no kind then.
	path string
	// fields and labels select what a list has, and next is where it goes on. They are empty for all, and for the beginning.
	fields, labels, next string
	// body is nil for none. patch is the form of a patch, empty for one to merge.
	body  any
	patch types.PatchType
}

// maxListed is how many objects a page of a list has.
const maxListed = "500"

// do makes the request once. The error says what the answer means.
func (c *Client) do(ctx context.Context, r request) (response []byte, err error) {
	call := c.api.Verb(methods[r.verb]).AbsPath(cmp.Or(r.path, Root(r.Group, r.version))).NamespaceIfScoped(r.namespace, r.namespace != "").
		Resource(r.Resource).SubResource(strings.Split(r.subresource, "/")...).SetHeader("Accept", r.Accept).MaxRetries(0)
	if r.path == "" && r.verb != "list" && r.verb != "create" {
		call = call.Name(r.name)
	}
	if r.verb == "list" {
		call = call.Param("limit", maxListed)
	}
	for key, value := range map[string]string{"fieldSelector": r.fields, "labelSelector": r.labels, "continue": r.next} {
		if value != "" {
			call = call.Param(key, value)
		}
	}
	if r.body != nil {
		body, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		contentType := Whole
		if r.verb == "patch" {
			contentType = string(cmp.Or(r.patch, types.MergePatchType))
		}
		call = call.Body(body).SetHeader("Content-Type", contentType)
	}
	var code int
	response, err = call.Do(ctx).StatusCode(&code).Raw()
	return response, checkAnswer(r, code, response, err)
}

// send makes the request, and reads the object in the answer.
func (c *Client) send(ctx context.Context, r request, into any) error {
	response, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	var identity struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := errors.Join(json.Unmarshal(response, into), json.Unmarshal(response, &identity)); err != nil {
		return fmt.Errorf("the answer of the Kubernetes API about %s %s cannot be read: %w", r.Resource, r.name, err)
	}
	// A proxy can answer with anything. Nobody is gone because of that.
	if m := identity.Metadata; m.Name != r.name || m.Namespace != r.namespace || m.UID == "" {
		return fmt.Errorf("the answer of the Kubernetes API is not about %s %s", r.Resource, path.Join(r.namespace, r.name))
	}
	return nil
}

// kubeletResources are resources that a kubelet may read without the group system:nodes.
var kubeletResources = []string{"pods", Nodes.Resource}

// rule is what a ClusterRole must have for the request.
func (r request) rule() string {
	if r.path != "" {
		return fmt.Sprintf("{nonResourceURLs: [%q], verbs: [%q]}", r.path, r.verb)
	}
	subresource, _, _ := strings.Cut(r.subresource, "/")
	rule := fmt.Sprintf("{apiGroups: [%q], resources: [%q], verbs: [%q]}", r.Group, path.Join(r.Resource, subresource), r.verb)
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
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); code == 0 && errors.As(err, &status) {
		code, body = int(status.Status().Code), nil // client-go keeps no body of a type that it does not know.
	}
	if code == 0 {
		return fmt.Errorf("the Kubernetes API does not answer: %w", err)
	}
	var s metav1.Status
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure {
		s = metav1.Status{}
	}
	text := fmt.Sprintf("status %d, not in the API's own form", code)
	if s.Message != "" {
		text = fmt.Sprintf("%s (status %d)", s.Message, code)
	}
	switch d := s.Details; code {
	case http.StatusNotFound:
		if s.Reason == metav1.StatusReasonNotFound && d != nil && d.Name == r.name && d.Group == r.Group && d.Kind == r.Resource {
			return fmt.Errorf("%w: %s", ErrNotFound, s.Message)
		}
		return fmt.Errorf("%w: %s has no %s", ErrNotServed, Root(r.Group, r.version), r.Resource)
	case http.StatusForbidden:
		if !deniedByPolicy(s.Message) {
			text += ". This account needs the rule " + r.rule()
		}
		return fmt.Errorf("%w: %s", ErrRefused, text)
	case http.StatusUnprocessableEntity:
		// So the API refuses a patch with the UID of an earlier object (ValidateObjectMetaAccessorUpdate in k8s.io/apimachinery).
		if s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }) {
			return fmt.Errorf("%w: %s", ErrConflict, text)
		}
		return fmt.Errorf("%w: %s", ErrRefused, text)
	case http.StatusConflict:
		if r.verb == "create" && s.Reason == metav1.StatusReasonAlreadyExists {
			return fmt.Errorf("%w: %s", pool.ErrExists, text)
		}
		return fmt.Errorf("%w: %s", ErrConflict, text)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", pool.ErrBusy, text)
	}
	return fmt.Errorf("the Kubernetes API answers with an error: %s", text)
}

// deniedByPolicy says whether a policy or a webhook refuses what the request does. The account has the right to do it then, and no rule
// would help.
func deniedByPolicy(message string) bool {
	return strings.Contains(message, " denied request: ") || strings.Contains(message, " denied the request")
}

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

var (
	// errNotThere says that the API itself has answered that the object does not exist. It is a proof.
	errNotThere = errors.New("the Kubernetes API answers that it does not exist")
	// errNotServed says that nobody serves the object's kind: a definition or an aggregated API is missing, or a proxy
	// has answered. It proves nothing about the object.
	errNotServed = errors.New("the Kubernetes API does not serve it")
	// errRefused says that the account has no right to ask.
	errRefused = errors.New("the Kubernetes API refuses")
	// errConflict says that somebody else has changed the object since it was read.
	errConflict = errors.New("somebody has changed it meanwhile")
	// errBusy says that the API has not looked at the request: it has too many.
	errBusy = errors.New("the Kubernetes API has too many requests")
)

// kind is where the API has the objects of a kind.
type kind struct {
	// group and name are as in attachment.Owner.
	group, name string
	resource    string
	// versions are tried one after the other, until one is served.
	versions []string
	// accept is what to ask for: metadataOnly if nothing else counts.
	accept string
}

const wholeObject = "application/json"

var (
	pods      = kind{"", attachment.OwnerPod, "pods", []string{"v1"}, wholeObject}
	sets      = kind{"apps", "StatefulSet", "statefulsets", []string{"v1"}, wholeObject}
	kruises   = kind{"apps.kruise.io", "StatefulSet", "statefulsets", []string{"v1beta1", "v1alpha1"}, wholeObject}
	machines  = kind{"kubevirt.io", "VirtualMachine", "virtualmachines", []string{"v1"}, metadataOnly}
	instances = kind{"kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances", []string{"v1"}, wholeObject}
	claims    = kind{"k8s.cni.cncf.io", "IPAMClaim", "ipamclaims", []string{"v1alpha1"}, wholeObject}
)

// metadataOf is the kind, if only the metadata count.
func metadataOf(k kind) kind {
	k.accept = metadataOnly
	return k
}

// knownKinds are the kinds that an owner has if the pod does not name another one.
var knownKinds = []kind{pods, sets, kruises, machines, metadataOf(instances)}

// object is what the API says about an object.
type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
	Status   json.RawMessage   `json:"status"`
}

// read returns the object as it is now. Without a resource version in the request, the API asks its store, and not its
// cache. The error matches errNotThere or errNotServed.
func (c *Client) read(ctx context.Context, k kind, namespace, name string) (made object, err error) {
	for _, version := range k.versions {
		made, err = c.readVersion(ctx, k, version, namespace, name)
		if !errors.Is(err, errNotServed) {
			return made, err
		}
	}
	return made, err
}

func (c *Client) readVersion(ctx context.Context, k kind, version, namespace, name string) (object, error) {
	var code int
	body, err := c.api.Get().AbsPath(root(k.group, version)).Namespace(namespace).Resource(k.resource).Name(name).
		SetHeader("Accept", k.accept).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	if err := answer(request{k, version, name, "get", k.resource}, code, body, err); err != nil {
		return object{}, err
	}
	var made object
	if err := json.Unmarshal(body, &made); err != nil {
		return object{}, fmt.Errorf("the answer of the Kubernetes API about %s %s cannot be read: %w", k.resource, name, err)
	}
	// A proxy can answer with anything. Nobody is gone because of that.
	if m := made.Metadata; m.Name != name || m.Namespace != namespace || m.UID == "" {
		return object{}, fmt.Errorf("the answer of the Kubernetes API is not about %s %s/%s", k.resource, namespace, name)
	}
	return made, nil
}

// patchStatus merges the change into the status of the object. The change has the UID and the resource version of what was read.
// The error matches errConflict if the object is not that one any more.
func (c *Client) patchStatus(ctx context.Context, k kind, namespace, name string, change []byte) error {
	var code int
	version := k.versions[0]
	body, err := c.api.Patch(types.MergePatchType).AbsPath(root(k.group, version)).Namespace(namespace).Resource(k.resource).Name(name).
		SubResource("status").SetHeader("Accept", k.accept).Body(change).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	return answer(request{k, version, name, "patch", k.resource + "/status"}, code, body, err)
}

// root is the path of a group's version.
func root(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// request is what the API was asked.
type request struct {
	kind
	version string
	// object is the name of the object.
	object, verb string
	// right is what a rule that allows the request names: a resource, or a path if the kind is none.
	right string
}

// rule is what a ClusterRole must have for the request.
func (r request) rule() string {
	if r.resource == "" {
		return fmt.Sprintf("{nonResourceURLs: [%q], verbs: [%q]}", r.right, r.verb)
	}
	rule := fmt.Sprintf("{apiGroups: [%q], resources: [%q], verbs: [%q]}", r.group, r.right, r.verb)
	if r.resource != pods.resource && r.resource != nodes.resource && r.resource != nodeLeases.resource && r.group != pool.Group {
		rule += ", which a kubelet has only if you bind it to the group system:nodes"
	}
	return rule
}

// answer returns nil if the request has succeeded, and otherwise what the answer means.
//
// client-go makes the same error of a 404 of the API about the object and of a 404 about anything else. Only a Status that
// names the object is a proof.
func answer(r request, code int, body []byte, err error) error {
	if status := apierrors.APIStatus(nil); code == 0 && errors.As(err, &status) {
		code, body = int(status.Status().Code), nil // client-go keeps no body of a type that it does not know.
	}
	var s metav1.Status
	own := json.Unmarshal(body, &s) == nil && s.Kind == "Status" && s.APIVersion == "v1" && s.Status == metav1.StatusFailure
	switch {
	case err == nil:
		return nil
	case code == 0:
		return fmt.Errorf("the Kubernetes API does not answer: %w", err)
	case code == http.StatusNotFound && own && s.Reason == metav1.StatusReasonNotFound && s.Details != nil &&
		s.Details.Name == r.object && s.Details.Group == r.group && s.Details.Kind == r.resource:
		return fmt.Errorf("%w: %s", errNotThere, s.Message)
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %s has no %s", errNotServed, root(r.group, r.version), r.resource)
	case code == http.StatusForbidden && own && deniedByPolicy(s.Message):
		return fmt.Errorf("%w: %s", errRefused, words(own, s, code))
	case code == http.StatusForbidden:
		return fmt.Errorf("%w: %s. This account needs the rule %s", errRefused, words(own, s, code), r.rule())
	case code == http.StatusConflict:
		return fmt.Errorf("%w: %s", errConflict, words(own, s, code))
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", errBusy, words(own, s, code))
	}
	return fmt.Errorf("the Kubernetes API answers with an error: %s", words(own, s, code))
}

// deniedByPolicy says whether a policy or a webhook refuses what the request does. The account has the right to do it then, and no rule
// would help.
func deniedByPolicy(message string) bool {
	return strings.Contains(message, " denied request: ") || strings.Contains(message, " denied the request")
}

// words are what the API says, or the status of an answer that is not the API's own.
func words(own bool, s metav1.Status, code int) string {
	if own && s.Message != "" {
		return fmt.Sprintf("%s (status %d)", s.Message, code)
	}
	return fmt.Sprintf("status %d, not in the API's own form", code)
}

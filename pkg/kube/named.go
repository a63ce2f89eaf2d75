package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

// ownerForm is the form of an owner in an annotation: KIND.GROUP/NAME, and KIND/NAME for a kind of the core group, as
// "kubectl get -o name" prints it. A kind has no dots (it is a label of RFC 1035), a group may have some, and neither has
// a slash: there is one way to read it. It has no version: that would grow old, and is no part of what an object is.
var ownerForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*)(?:\.([a-z0-9][a-z0-9.-]*))?/([A-Za-z0-9][A-Za-z0-9._:-]*)$`)

// errNoKind says that the API has no such kind.
var errNoKind = errors.New("the Kubernetes API has no such kind in a namespace")

// annotatedOwner is the owner that the annotation of a pod names. The pods that name it share it, but never an address. The object
// must be in the pod's own namespace: nobody takes an address of another one.
func (c *Client) annotatedOwner(ctx context.Context, pod *metav1.ObjectMeta, value string) (decision, error) {
	wrong := func(format string, args ...any) error {
		return invalid("the pod's annotation %s=%s: %w", ownerKey, quoteShort(value), fmt.Errorf(format, args...))
	}
	if err := checkLength(ownerKey, value); err != nil {
		return decision{}, err
	}
	parts := ownerForm.FindStringSubmatch(value)
	if parts == nil {
		return decision{}, wrong(`write KIND.GROUP/NAME, such as deployment.apps/web, as "kubectl get -o name" prints it`)
	}
	k, err := c.discover(ctx, parts[2], parts[1])
	switch {
	case errors.Is(err, errNoKind):
		return decision{}, wrong("%w: name another one, or install its definition", err)
	case err != nil:
		return decision{}, unavailable(err)
	case k.Group == machines.Group:
		// The next launcher of a VM takes the VM's addresses over at once. They would have two pods.
		return decision{}, wrong("the addresses of a virtual machine are those of its launcher pods: name another owner")
	}
	object, err := c.Read(ctx, k, pod.Namespace, parts[3])
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return decision{}, wrong("%w. It must be in the namespace %s: make it first, or correct the annotation", err, pod.Namespace)
	case err != nil:
		return decision{}, unavailable(err)
	}
	workload := attachment.Owner{Group: k.Group, Kind: k.Name, Namespace: pod.Namespace, Name: parts[3], UID: string(object.Metadata.UID)}
	return decision{Answer: owner.Answer{Owner: workload, Persistent: true}, reason: "an annotation of the pod names the owner"}, nil
}

// discover asks the API where the objects of a kind are. Capital letters in the name do not matter. The error matches errNoKind
// if the API has none, or several. Only kinds with objects in namespaces count.
func (c *Client) discover(ctx context.Context, group, name string) (objects.Kind, error) {
	versions := []string{"v1"}
	if group != "" {
		var apiGroup metav1.APIGroup
		if err := c.discovery(ctx, "/apis/"+group, &apiGroup); err != nil {
			return objects.Kind{}, fmt.Errorf("%s: %w", group, err)
		}
		versions = []string{apiGroup.PreferredVersion.Version}
		for _, v := range apiGroup.Versions {
			if v.Version != apiGroup.PreferredVersion.Version {
				versions = append(versions, v.Version)
			}
		}
	}
	for _, version := range versions {
		var list metav1.APIResourceList
		if err := c.discovery(ctx, objects.Root(group, version), &list); err != nil {
			return objects.Kind{}, fmt.Errorf("%s: %w", objects.Root(group, version), err)
		}
		var found []objects.Kind
		for _, r := range list.APIResources {
			// The resource of a kind has no slash: "deployments/scale" is a part of one.
			if strings.EqualFold(r.Kind, name) && r.Namespaced && !strings.Contains(r.Name, "/") {
				found = append(found, objects.Kind{Group: group, Name: r.Kind, Resource: r.Name, Versions: []string{version}, Accept: objects.MetadataOnly})
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return objects.Kind{}, fmt.Errorf("%w: %s of the group %q", errNoKind, name, group)
}

// discovery reads what the API says about itself. The error matches errNoKind if it has nothing at the path.
func (c *Client) discovery(ctx context.Context, path string, into any) error {
	err := c.ReadPath(ctx, path, into)
	if errors.Is(err, objects.ErrNotServed) {
		return errNoKind
	}
	return err
}

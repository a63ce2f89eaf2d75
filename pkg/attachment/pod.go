package attachment

import (
	"fmt"
	"strings"
)

// Pod is the Kubernetes pod that an attachment serves. All fields are empty if the runtime did not name a pod,
// as with cnitool.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// SetArg takes a pair of CNI_ARGS, if it tells of the pod.
func (p *Pod) SetArg(key, value string) {
	switch key {
	case "K8S_POD_NAMESPACE":
		p.Namespace = value
	case "K8S_POD_NAME":
		p.Name = value
	case "K8S_POD_UID":
		p.UID = value
	}
}

// String returns "namespace/name", or "-" for no pod, for people to read. It
// is never parsed.
func (p Pod) String() string { return p.Or("-") }

// Or returns what String returns, or the text for no pod.
func (p Pod) Or(text string) string {
	if p.Name == "" {
		return text
	}
	return p.Namespace + "/" + p.Name
}

// Validate reports a name or a namespace that no pod can have. In Kubernetes a name is as in RFC 1123, and a
// namespace has no dots.
func (p Pod) Validate() error {
	const maxNamespace, maxName = 63, 253
	if !isLabel(p.Namespace) || len(p.Namespace) > maxNamespace {
		return fmt.Errorf("no namespace can have the name %q: it must have small letters, digits and '-', with a letter or digit at both ends, and at most %d of these", p.Namespace, maxNamespace)
	}
	for label := range strings.SplitSeq(p.Name, ".") {
		if !isLabel(label) || len(p.Name) > maxName {
			return fmt.Errorf("no pod can have the name %q: it must have small letters, digits, '-' and '.', with a letter or digit at both ends of each part, and at most %d of these", p.Name, maxName)
		}
	}
	return nil
}

// isLabel says whether s is a label of a name in Kubernetes.
func isLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// PodNetwork is an interface of a pod as Multus tells of it. MAC is lower case.
type PodNetwork struct{ Network, Interface, MAC string }

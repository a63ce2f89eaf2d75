package attachment

// Pod is the Kubernetes pod that an attachment serves. All fields are empty
// when the runtime did not name one, as with cnitool.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// String returns "namespace/name", or "-" for no pod, for people to read. It
// is never parsed.
func (p Pod) String() string {
	if p.Name == "" {
		return "-"
	}
	return p.Namespace + "/" + p.Name
}

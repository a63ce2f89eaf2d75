package validate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/printable"
)

// Network is one network configuration of a file.
type Network struct {
	File string
	// Place is the document in the file. It is empty for a file with one configuration.
	Place string
	// Config is the JSON of the list, or of the single plugin.
	Config []byte
	// Name is the name of the NetworkAttachmentDefinition. Multus takes it for a configuration without a name.
	Name string
}

// runtimeExtensions are those of the files that runtimes read in a directory (libcni.ConfFiles).
var runtimeExtensions = []string{".conf", ".conflist", ".json"}

// manifestExtensions are those of manifests for kubectl.
var manifestExtensions = []string{".yaml", ".yml"}

// collected has the networks that were read, these networks taken apart, and what was wrong.
type collected struct {
	files    int
	networks []Network
	chains   []chain
	findings []ConfigFinding
}

// addFinding reports something on one line. Of the network, its file and place count.
func (c *collected) addFinding(n Network, severity Severity, message string) {
	c.findings = append(c.findings, ConfigFinding{File: n.File, Place: n.Place, Severity: severity, Message: printable.Line(message)})
}

// read reads the networks in a file with that name and content. It passes over Kubernetes objects of other kinds than
// NetworkAttachmentDefinition, and over YAML that is no network configuration, such as a kustomization.
func (c *collected) read(file string, content []byte) {
	if !slices.Contains(manifestExtensions, filepath.Ext(file)) {
		c.readJSON(Network{File: file, Config: content})
		return
	}
	documents := splitDocuments(content)
	for i, d := range documents {
		n := Network{File: file, Config: d.json}
		if len(documents) > 1 {
			n.Place = fmt.Sprintf("document %d", i+1)
		}
		if d.err != nil {
			c.addFinding(n, Error, "is no YAML: "+strings.Join(strings.Fields(d.err.Error()), " ")) // The library's errors have several lines.
		} else if isConfigObject(decode[map[string]json.RawMessage](d.json)) {
			c.readJSON(n)
		}
	}
}

// isConfigObject says whether a YAML document is a Kubernetes object or a network configuration.
func isConfigObject(keys map[string]json.RawMessage) bool {
	return keys["kind"] != nil || keys["cniVersion"] != nil || keys["plugins"] != nil || strings.HasPrefix(decode[string](keys["type"]), "relink-")
}

// decode returns a value of that type, or the zero value if the JSON has another one.
func decode[T any](b json.RawMessage) (value T) {
	_ = json.Unmarshal(b, &value)
	return value
}

// readJSON reads one object: a network configuration, or an object of Kubernetes.
func (c *collected) readJSON(n Network) {
	var keys map[string]json.RawMessage
	if err := cniplugin.DecodePart("", n.Config, &keys); err != nil {
		c.addFinding(n, Error, errorText(err))
		return
	}
	items := decode[[]json.RawMessage](keys["items"])
	switch {
	case keys["kind"] == nil:
		c.networks = append(c.networks, n)
	case len(items) > 0:
		for i, item := range items {
			if decode[map[string]json.RawMessage](item)["kind"] != nil { // Other kinds than lists have "items" of their own.
				c.readJSON(Network{File: n.File, Place: joinPlace(n.Place, fmt.Sprintf("item %d", i+1)), Config: item})
			}
		}
	case decode[string](keys["kind"]) == "NetworkAttachmentDefinition":
		c.readDefinition(n)
	}
}

func (c *collected) readDefinition(n Network) {
	var o struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			Config json.RawMessage `json:"config"`
		} `json:"spec"`
	}
	if err := cniplugin.DecodePart("", n.Config, &o); err != nil {
		c.addFinding(n, Error, errorText(err))
		return
	}
	n.Name = o.Metadata.Name
	n.Place = joinPlace(n.Place, strings.TrimPrefix(o.Metadata.Namespace+"/"+n.Name, "/"))
	var text string
	switch err := json.Unmarshal(o.Spec.Config, &text); {
	case o.Spec.Config == nil || err == nil && text == "":
		c.addFinding(n, Warning, fmt.Sprintf("invalid \"spec.config\": missing: Multus takes the file of the network %q in its configuration directory: validate that", n.Name))
		return
	case err != nil:
		c.addFinding(n, Error, errorText(cniplugin.ConfigError("spec.config", cniplugin.RawValue(o.Spec.Config), "must be a string with JSON in it: in YAML, write config: | or put it in quotation marks")))
		return
	}
	n.Config = []byte(text)
	if err := cniplugin.DecodePart("", n.Config, new(map[string]json.RawMessage)); err != nil {
		c.addFinding(n, Error, "spec.config: "+errorText(err))
		return
	}
	c.networks = append(c.networks, n)
}

// joinPlace names a place in another one. Each of them can be empty.
func joinPlace(place, suffix string) string {
	if place == "" || suffix == "" {
		return place + suffix
	}
	return place + ", " + suffix
}

package validate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/cniplugin"
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

// IsConfig says whether to read a file of that name in a directory.
func IsConfig(name string) bool {
	return slices.Contains(runtimeExtensions, filepath.Ext(name)) || slices.Contains(manifestExtensions, filepath.Ext(name))
}

// Read returns the networks in a file with that name and content, and a finding for each part that cannot be
// read. It passes over Kubernetes objects of other kinds than NetworkAttachmentDefinition, and over YAML that is no
// network configuration, such as a kustomization.
func Read(file string, content []byte) ([]Network, []ConfigFinding) {
	if !slices.Contains(manifestExtensions, filepath.Ext(file)) {
		return readJSON(file, "", content)
	}
	var networks []Network
	var findings []ConfigFinding
	documents := splitDocuments(content)
	for i, d := range documents {
		place := ""
		if len(documents) > 1 {
			place = fmt.Sprintf("document %d", i+1)
		}
		if d.err != nil {
			findings = append(findings, ConfigFinding{File: file, Place: place, Severity: Error, Message: "is no YAML: " + oneLine(d.err)})
			continue
		}
		var keys map[string]json.RawMessage
		if json.Unmarshal(d.json, &keys) != nil || !isConfigObject(keys) {
			continue
		}
		found, wrong := readJSON(file, place, d.json)
		networks, findings = append(networks, found...), append(findings, wrong...)
	}
	return networks, findings
}

// isConfigObject says whether a YAML document is a Kubernetes object or a network configuration.
func isConfigObject(keys map[string]json.RawMessage) bool {
	var kind string
	_ = json.Unmarshal(keys["type"], &kind) // A "type" that is no string is no plugin's name.
	return keys["kind"] != nil || keys["cniVersion"] != nil || keys["plugins"] != nil || strings.HasPrefix(kind, "relink-")
}

// oneLine is an error of the YAML library on one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// object has the keys of a Kubernetes object that count here.
type object struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Config json.RawMessage `json:"config"`
	} `json:"spec"`
}

// readJSON reads one object: a network configuration, or an object of Kubernetes.
func readJSON(file, place string, b []byte) ([]Network, []ConfigFinding) {
	refuse := func(message string) []ConfigFinding {
		return []ConfigFinding{{File: file, Place: place, Severity: Error, Message: message}}
	}
	var keys map[string]json.RawMessage
	if err := cniplugin.DecodePart("", b, &keys); err != nil {
		return nil, refuse(errorText(err))
	}
	if keys["kind"] == nil {
		return []Network{{File: file, Place: place, Config: b}}, nil
	}
	if items, ok := decode[[]json.RawMessage](keys["items"]); ok && len(items) > 0 {
		return readItems(file, place, items)
	}
	if kind, _ := decode[string](keys["kind"]); kind != "NetworkAttachmentDefinition" {
		return nil, nil
	}
	var o object
	if err := cniplugin.DecodePart("", b, &o); err != nil {
		return nil, refuse(errorText(err))
	}
	if o.Metadata.Namespace != "" {
		place = joinPlace(place, o.Metadata.Namespace+"/"+o.Metadata.Name)
	} else {
		place = joinPlace(place, o.Metadata.Name)
	}
	return readDefinition(file, place, o)
}

// readItems reads the objects of a list. It passes over what is no object: other kinds have "items" of their own.
func readItems(file, place string, items []json.RawMessage) ([]Network, []ConfigFinding) {
	var networks []Network
	var findings []ConfigFinding
	for i, item := range items {
		if keys, _ := decode[map[string]json.RawMessage](item); keys["kind"] == nil {
			continue
		}
		found, wrong := readJSON(file, joinPlace(place, fmt.Sprintf("item %d", i+1)), item)
		networks, findings = append(networks, found...), append(findings, wrong...)
	}
	return networks, findings
}

// decode returns a value of that type. ok says whether the JSON has one.
func decode[T any](b json.RawMessage) (value T, ok bool) {
	if b == nil {
		return value, false
	}
	err := json.Unmarshal(b, &value)
	return value, err == nil
}

func readDefinition(file, place string, o object) ([]Network, []ConfigFinding) {
	finding := ConfigFinding{File: file, Place: place, Severity: Error}
	var text string
	switch err := json.Unmarshal(o.Spec.Config, &text); {
	case o.Spec.Config == nil || err == nil && text == "":
		finding.Severity = Warning
		finding.Message = fmt.Sprintf("invalid \"spec.config\": missing: Multus takes the file of the network %q in its configuration directory: validate that", o.Metadata.Name)
		return nil, []ConfigFinding{finding}
	case err != nil:
		finding.Message = errorText(cniplugin.ConfigError("spec.config", cniplugin.RawValue(o.Spec.Config), "must be a string with JSON in it: in YAML, write config: | or put it in quotation marks"))
		return nil, []ConfigFinding{finding}
	}
	var keys map[string]json.RawMessage
	if err := cniplugin.DecodePart("", []byte(text), &keys); err != nil {
		finding.Message = "spec.config: " + errorText(err)
		return nil, []ConfigFinding{finding}
	}
	return []Network{{File: file, Place: place, Config: []byte(text), Name: o.Metadata.Name}}, nil
}

// joinPlace names a place in another one. Each of them can be empty.
func joinPlace(place, suffix string) string {
	if place == "" || suffix == "" {
		return place + suffix
	}
	return place + ", " + suffix
}

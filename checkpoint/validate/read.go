package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

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

// Read returns the networks in a file with that name and content, and a finding for each part that can't be
// read. It passes over Kubernetes objects of other kinds than NetworkAttachmentDefinition.
func Read(file string, content []byte) ([]Network, []Finding) {
	if !slices.Contains(manifestExtensions, filepath.Ext(file)) {
		return readJSON(file, "", content)
	}
	var networks []Network
	var findings []Finding
	documents := documentEnd.Split(string(content), -1)
	for i, document := range documents {
		place := ""
		if len(documents) > 1 {
			place = fmt.Sprintf("document %d", i+1)
		}
		b, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			findings = append(findings, Finding{File: file, Place: place, Severity: Error, Message: "is no YAML: " + oneLine(err)})
			continue
		}
		if string(bytes.TrimSpace(b)) == "null" {
			continue // Nothing but comments.
		}
		found, wrong := readJSON(file, place, b)
		networks, findings = append(networks, found...), append(findings, wrong...)
	}
	return networks, findings
}

// documentEnd stands between documents. Within a document no line begins so.
var documentEnd = regexp.MustCompile(`(?m)^---(?:[ \t].*)?$`)

// oneLine is an error of the YAML library on one line.
func oneLine(err error) string {
	return string(bytes.Join(bytes.Fields([]byte(err.Error())), []byte(" ")))
}

// object has the keys of a Kubernetes object that count here.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Config json.RawMessage `json:"config"`
	} `json:"spec"`
	Items []json.RawMessage `json:"items"`
}

// readJSON reads one object: a network configuration, or an object of Kubernetes.
func readJSON(file, place string, b []byte) ([]Network, []Finding) {
	refuse := func(message string) []Finding {
		return []Finding{{File: file, Place: place, Severity: Error, Message: message}}
	}
	var keys map[string]json.RawMessage
	if err := cniplugin.DecodePart("", b, &keys); err != nil {
		return nil, refuse(message(err))
	}
	if keys["kind"] == nil {
		return []Network{{File: file, Place: place, Config: b}}, nil
	}
	var o object
	if err := cniplugin.DecodeLoosely("", b, &o); err != nil {
		return nil, refuse(message(err))
	}
	switch {
	case o.Items != nil:
		var networks []Network
		var findings []Finding
		for i, item := range o.Items {
			found, wrong := readJSON(file, join(place, fmt.Sprintf("item %d", i+1)), item)
			networks, findings = append(networks, found...), append(findings, wrong...)
		}
		return networks, findings
	case o.Kind != "NetworkAttachmentDefinition":
		return nil, nil
	}
	if o.Metadata.Namespace != "" {
		place = join(place, o.Metadata.Namespace+"/"+o.Metadata.Name)
	} else {
		place = join(place, o.Metadata.Name)
	}
	return readDefinition(file, place, o)
}

func readDefinition(file, place string, o object) ([]Network, []Finding) {
	finding := Finding{File: file, Place: place, Severity: Error}
	var text string
	switch err := json.Unmarshal(o.Spec.Config, &text); {
	case o.Spec.Config == nil || err == nil && text == "":
		finding.Severity = Warning
		finding.Message = fmt.Sprintf("invalid \"spec.config\": missing: Multus takes the file of the network %q in its configuration directory: validate that", o.Metadata.Name)
		return nil, []Finding{finding}
	case err != nil:
		finding.Message = message(cniplugin.ConfigError("spec.config", cniplugin.Written(o.Spec.Config), "must be a string with JSON in it: in YAML, write config: | or put it in quotation marks"))
		return nil, []Finding{finding}
	}
	var keys map[string]json.RawMessage
	if err := cniplugin.DecodePart("", []byte(text), &keys); err != nil {
		finding.Message = "spec.config: " + message(err)
		return nil, []Finding{finding}
	}
	return []Network{{File: file, Place: place, Config: []byte(text), Name: o.Metadata.Name}}, nil
}

func join(place, more string) string {
	if place == "" {
		return more
	}
	return place + ", " + more
}

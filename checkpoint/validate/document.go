package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
)

// document is one document of a YAML file as JSON, or what is wrong with it.
type document struct {
	json []byte
	err  error
}

// ToJSON returns the document of a YAML file as JSON. A file with several documents is an error: nobody may miss the others. A file that
// begins as JSON does is JSON in the error.
func ToJSON(content []byte) ([]byte, error) {
	documents := splitDocuments(content)
	switch {
	case len(documents) == 0:
		return nil, errors.New("it is empty")
	case documents[0].err == nil && len(documents) == 1:
		return documents[0].json, nil
	case documents[0].err == nil:
		return nil, errors.New("it has more than one document: put all into one list")
	}
	if text := bytes.TrimSpace(content); bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("[")) {
		var raw json.RawMessage
		if err := json.Unmarshal(text, &raw); err != nil {
			return nil, fmt.Errorf("it is no JSON, or only a part of it: %w", err)
		}
	}
	return nil, documents[0].err
}

// splitDocuments returns the documents of a YAML file. After a document that is no YAML, nobody can tell where the next one
// begins. So that document is the last one, and its error says so.
func splitDocuments(content []byte) []document {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var documents []document
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err != nil {
			return append(documents, document{err: fmt.Errorf("%w: nothing from there on was read", err)})
		}
		documents = append(documents, convert(&node))
	}
}

// convert makes JSON of a document. A key that is there twice is an error, as it is for kubectl. There is no JSON of keys that are
// neither texts nor whole numbers: no network and no object of Kubernetes has such keys.
func convert(node *yaml.Node) document {
	var value any
	if err := node.Decode(&value); err != nil {
		return document{err: err}
	}
	b, _ := jsonv2.Marshal(value)
	return document{json: b}
}

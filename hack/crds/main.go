// Command crds writes the CustomResourceDefinitions of shared pools. Their fields and what is said of them come from the Go types
// of pkg/pool. What a value may be comes from the tables in this directory. Run it from the root of the repository:
//
//	go run ./hack/crds
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// file is what the command writes.
const file = "deploy/kubernetes/pools/crds.yaml"

const head = `# The kinds of shared pools. Made by "go run ./hack/crds" from pkg/pool: change it there.
`

func main() {
	text, err := generate(".")
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "crds: %v\n", err)
		os.Exit(1)
	}
}

// generate returns the content of the file. root is the root of the repository.
func generate(root string) ([]byte, error) {
	docs, err := readComments(filepath.Join(root, "pkg/pool"), filepath.Join(root, "pkg/attachment"))
	if err != nil {
		return nil, err
	}
	b := builder{docs: docs, limits: limits()}
	text := bytes.NewBufferString(head)
	for i, k := range kinds {
		definition, err := k.definition(&b)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		if err := yaml.NewEncoderWithOptions(text, &yaml.EncoderOptions{SeqIndent: yaml.WideSequenceStyle}).Encode(definition); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), b.checkUnused()
}

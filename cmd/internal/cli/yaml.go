package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// writeYAML writes as YAML what JSON would contain, in the same order: JSON is YAML in another style.
func writeYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(b) {
		if r <= '~' {
			text.WriteRune(r)
		} else { // YAML does not take every character as it is.
			fmt.Fprintf(&text, `\U%08x`, r)
		}
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text.String()), &document); err != nil {
		return err
	}
	setStyles(&document)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(&document), encoder.Close())
}

// setStyles puts each value of a list or an object on a line, and takes the quotes off plain words.
func setStyles(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || plainWord().MatchString(n.Value) && !oldBoolean().MatchString(n.Value) {
		n.Style = 0
	}
	for _, child := range n.Content {
		setStyles(child)
	}
}

// plainWord matches text that every reader takes for a string, but for booleans. Readers of YAML 1.1 (PyYAML, Ansible) take much else
// for a number or a time, such as a MAC of digits alone. Text that pkg/printable spells out stays in quotes, too.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._-]*$`) })

// oldBoolean matches the booleans of YAML 1.1. Those of YAML 1.2 get quotes anyway.
var oldBoolean = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?i:y|yes|on|n|no|off)$`) })

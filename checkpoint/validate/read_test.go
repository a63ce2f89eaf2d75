package validate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every document of a manifest is read, whatever ends its lines and whatever divides the documents.
func TestAllDocumentsOfAManifestAreRead(t *testing.T) {
	const wrong = `relink-macvlan: error: invalid configuration key "vlna": no such key of relink-macvlan; did you mean "vlan"?`
	const misspelt = "kind: NetworkAttachmentDefinition\nmetadata:\n  name: lan\nspec:\n  config: '{\"cniVersion\": \"1.0.0\", \"type\": \"relink-macvlan\", \"vlna\": 3}'\n"
	const other = "kind: ConfigMap\nmetadata:\n  name: a\n"
	second := []string{"x.yaml: document 2, lan, " + wrong}
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"lines end in LF":           {other + "---\n" + misspelt, second},
		"lines end in CRLF":         {strings.ReplaceAll(other+"---\n"+misspelt, "\n", "\r\n"), second},
		"text behind the line":      {other + `--- {"kind": "NetworkAttachmentDefinition", "metadata": {"name": "lan"}, "spec": {"config": "{\"cniVersion\": \"1.0.0\", \"type\": \"relink-macvlan\", \"vlna\": 3}"}}` + "\n", second},
		"three dots end a document": {other + "...\n---\n" + misspelt, second},
		"three dots and no dashes": {other + "...\n" + misspelt, []string{
			"x.yaml: document 2: error: is no YAML: yaml: line 4: did not find expected <document start>: nothing from there on was read",
		}},
		"a byte order mark": {"\ufeff" + misspelt, []string{"x.yaml: lan, " + wrong}},
		"an alias":          {"x: &c '{\"cniVersion\": \"1.0.0\", \"type\": \"relink-macvlan\", \"vlna\": 3}'\nkind: NetworkAttachmentDefinition\nmetadata: {name: lan}\nspec: {config: *c}\n", []string{"x.yaml: lan, " + wrong}},
		"three dashes in the string": {"kind: NetworkAttachmentDefinition\nmetadata:\n  name: lan\nspec:\n  config: |\n    ---\n    {\"type\": \"relink-macvlan\"}\n", []string{
			`x.yaml: lan: error: spec.config: network configuration: is no JSON from "--\n{\"type\": \"relink-..." in line 1 on: a comma, a quotation mark or a bracket is missing or too many`,
		}},
		"a key twice": {"kind: Pod\nkind: Pod\n---\n" + misspelt, []string{
			`x.yaml: document 1: error: is no YAML: yaml: unmarshal errors: line 2: mapping key "kind" already defined at line 1`, second[0],
		}},
		"no YAML before the end": {misspelt + "---\nkind: {{ .Values.kind }}}\n---\n" + misspelt, []string{
			"x.yaml: document 2: error: is no YAML: yaml: line 6: did not find expected key: nothing from there on was read", "x.yaml: document 1, lan, " + wrong,
		}},
	} {
		if diff := cmp.Diff(test.want, findingsOf(t, "x.yaml", test.content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// YAML that is no network configuration is ignored, whatever it contains.
func TestOtherYAMLIsPassedOver(t *testing.T) {
	for name, content := range map[string]string{
		"nothing":                    "",
		"comments":                   "# nothing\n---\n# nothing\n",
		"a kustomization":            "resources:\n- a.yaml\n",
		"values with a type":         "service:\n  type: ClusterIP\ntype: web\n",
		"a list":                     "- a\n- b\n",
		"a word":                     "word\n",
		"keys that are no strings":   "1: a\ntrue: b\n",
		"another kind, odd items":    "kind: Foo\nmetadata: {name: 5}\nitems: true\n",
		"another kind, items inside": "kind: Foo\nitems: [a, 1, {key: config.json}]\n",
		"another kind, odd spec":     "kind: Foo\nspec: [1, 2]\n",
		"a kind that is no string":   "kind: 7\nspec: {config: 1}\n",
	} {
		var c collected
		c.read("x.yaml", []byte(content))
		if len(c.networks) > 0 || len(c.findings) > 0 {
			t.Errorf("%s: %v, %v", name, c.networks, lines(c.findings))
		}
	}
}

// A few lines of YAML can expand to gigabytes.
func TestYAMLThatGrowsIsRefused(t *testing.T) {
	content := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		content += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ",") + "]\n"
	}
	want := []string{"x.yaml: error: is no YAML: yaml: document contains excessive aliasing"}
	if diff := cmp.Diff(want, findingsOf(t, "x.yaml", content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/relink-cni/relink/pkg/pool"
)

// schemas returns the schema of each kind.
func schemas(t *testing.T) map[string]map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/pools/crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]map[string]any{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
			t.Fatal(err)
		}
		schemas[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return schemas
}

// The API counts what a rule can cost by the longest text and list. So each has a limit.
func TestEachTextAndListOfTheCRDsIsLimited(t *testing.T) {
	for kind, schema := range schemas(t) {
		for _, part := range []string{"spec", "status"} {
			if s, ok := schema["properties"].(map[string]any)[part].(map[string]any); ok {
				expectLimits(t, kind+"."+part, s)
			}
		}
	}
}

func expectLimits(t *testing.T, place string, schema map[string]any) {
	t.Helper()
	for kind, limit := range map[string]string{"string": "maxLength", "array": "maxItems"} {
		if schema["type"] == kind && schema[limit] == nil && schema["enum"] == nil {
			t.Errorf("%s has no %s: add a marker in pkg/pool, then make crds", place, limit)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		expectLimits(t, place+"[]", items)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		expectLimits(t, place+"."+name, property.(map[string]any))
	}
}

// Markers are text. What they say is what the program goes by.
func TestTheCRDsHaveTheNumbersOfTheProgram(t *testing.T) {
	all := schemas(t)
	for _, test := range []struct {
		field, limit string
		want         int
	}{
		{"AddressPool spec blockSize", "default", pool.DefaultBlockSize},
		{"AddressPool spec blockSize", "maximum", pool.MaxBlockSize},
		{"AddressPool status free", "maxLength", (pool.MaxBlocks/8 + 2) / 3 * 4},
		{"AddressBlock spec pool", "maxLength", pool.MaxName},
		{"AddressBlock spec index", "maximum", pool.MaxBlocks - 1},
		{"AddressBlock status addresses", "maxLength", pool.MaxBlockSize},
		{"AddressBlock status unproven", "maxItems", pool.MaxBlockSize},
		{"AddressClaim spec pool", "maxLength", pool.MaxName},
	} {
		path := strings.Fields(test.field)
		schema := all[path[0]]
		for _, name := range path[1:] {
			schema = schema["properties"].(map[string]any)[name].(map[string]any)
		}
		if fmt.Sprint(schema[test.limit]) != fmt.Sprint(test.want) {
			t.Errorf("%s: %s is %v, want %d", test.field, test.limit, schema[test.limit], test.want)
		}
	}
	rules := fmt.Sprint(all["AddressPool"])
	var reserved []string
	for _, network := range pool.Reserved {
		reserved = append(reserved, network.String())
	}
	for _, want := range []string{
		fmt.Sprintf("self.metadata.name.size() <= %d", pool.MaxName), "reserved networks " + strings.Join(reserved, ", "), "['" + strings.Join(reserved, "', '") + "']",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no rule has %q", want)
		}
	}
}

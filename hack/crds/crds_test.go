package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/relink-cni/relink/pkg/pool"
)

const root = "../.."

// The file in deploy/ is what the types and the tables come to. test/cluster shows that an API takes it.
func TestTheFileIsUpToDate(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what pkg/pool and hack/crds say. Run: go run ./hack/crds\n%s", file, diff)
	}
}

// What the API fills in is what the program would take.
func TestDefaultIsThatOfTheProgram(t *testing.T) {
	if got := poolLimits["Spec.blockSize"].Default; got != pool.DefaultBlockSize {
		t.Errorf("%v, want %d", got, pool.DefaultBlockSize)
	}
}

// A field without limits is found before an API refuses the file, and so are limits that no field has.
func TestWhatIsMissing(t *testing.T) {
	type spec struct {
		Name  string   `json:"name"`
		Names []string `json:"names"`
	}
	specType := reflect.TypeFor[spec]()
	for name, test := range map[string]struct {
		goType reflect.Type
		limits map[string]limit
		want   string
	}{
		"a text":       {specType, map[string]limit{}, "spec.name has no MaxLength: add it to the table of limits"},
		"texts":        {specType, map[string]limit{"spec.name": {MaxLength: 1}}, "spec.names[] has no MaxLength"},
		"a list":       {specType, map[string]limit{"spec.name": {MaxLength: 1}, "spec.names[]": {MaxLength: 1}}, "spec.names has no MaxItems"},
		"a type":       {reflect.TypeFor[map[string]string](), nil, "spec: there is no schema for the Go type map[string]string"},
		"an old limit": {specType, map[string]limit{"spec.name": {MaxLength: 1}, "spec.names[]": {MaxLength: 1}, "spec.names": {MaxItems: 1}, "spec.gone": {}}, "the table of limits has spec.gone, and pkg/pool has no such field"},
	} {
		b := builder{limits: test.limits}
		_, err := b.schema(test.goType, "spec")
		if err == nil {
			err = b.checkUnused()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A comment names in Go what a reader of YAML knows by another name.
func TestCommentsAreOfTheYAML(t *testing.T) {
	docs, err := readComments(filepath.Join(root, "pkg/pool"))
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"Addresses": "addresses has one character for each address, in order: the ID of a holder, '.', or '-'.",
		"Unproven":  "unproven are addresses that a fenced party had.",
		"PoolUID":   "",
	} {
		if got := docs.fieldText(reflect.TypeFor[pool.BlockSpec](), field); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}

// Mappings keep their order.
func TestOrder(t *testing.T) {
	text, err := yaml.Marshal(orderedMap{{"b", 1}, {"a", []orderedMap{{{"d", "x"}, {"c", nil}}}}})
	if want := "b: 1\na:\n- d: x\n  c: null\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}

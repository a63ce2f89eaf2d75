package validate

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

// odd are plugins that libcni writes in another way than they are in the file.
var odd = map[string]string{
	"nothing":              `{"type": "x"}`,
	"numbers":              `{"type": "x", "a": 1.4e3, "b": 3.0, "c": 1.5, "d": 123456789012345678901, "e": 1e30, "f": -0}`,
	"bytes, no UTF-8":      "{\"type\": \"x\", \"caf\xe9\": \"\xff\"}",
	"half of a surrogate":  `{"type": "x", "a": "\ud800", "b\udc00": 1}`,
	"marks":                `{"type": "x", "a": "<&>", "b": "\u2028"}`,
	"a key in other cases": `{"type": "x", "TYPE": "y", "Type": "z", "cniversion": "0.2.0", "Name": "n"}`,
	"a key twice":          `{"type": "y", "type": "x", "a": {"b": 1}, "a": {"c": 1}}`,
	"its own head":         `{"type": "x", "name": "other", "cniVersion": "0.2.0"}`,
}

// What validate shows to the plugins' readers is what libcni gives the plugins, byte for byte.
func TestPluginsAreReadAsLibcniGivesThem(t *testing.T) {
	for name, plugin := range odd {
		config := []byte(list(plugin))
		theirs, err := libcni.ConfListFromBytes(config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ours, err := rewritten(config, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h, wrong, refused := readHead(ours)
		if len(wrong) > 0 || refused != nil {
			t.Fatalf("%s: %v, %v", name, wrong, refused)
		}
		sameAsInjected(t, name+" in a list", theirs.Plugins[0], h.Plugins[0])

		one, err := libcni.NetworkPluginConfFromBytes([]byte(plugin))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sameAsInjected(t, name, one, []byte(plugin))
	}
}

func sameAsInjected(t *testing.T, name string, theirs *libcni.PluginConfig, ours []byte) {
	t.Helper()
	want, err := libcni.InjectConf(theirs, map[string]any{"name": "pods", "cniVersion": "1.1.0"})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got, err := rewritten(ours, map[string]any{"name": "pods", "cniVersion": "1.1.0"})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, got)
	if diff := cmp.Diff(string(want.Bytes), escaped.String()); diff != "" {
		t.Errorf("%s (-libcni +validate):\n%s", name, diff)
	}
}

// Of several keys that are there twice, the first one is named.
func TestKeysThatAreThereTwice(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: "", `{"a": 1, "b": 2}`: "", `{"a": 1, "a": 2}`: "a", `{"a": 1, "A": 2}`: "",
		`{"a":1 , "b": {"c": 1,"c": 2},"a":2,"a" :3}`:      "b.c",
		`{"a": {"c": 1, "c": 2}, "a": [{"d": 1, "d": 2}]}`: "a.c",
		`{"a": [{}, {"d": 1, "d": 2}]}`:                    "a[1].d",
		"{\"\xff\": 1, \"a\": 1, \"a\": 2}":                "a",
		`{"a": "\ud800", "a": 2}`:                          "a",
	} {
		var c collected
		r := c.reader(chain{})
		r.checkEncoding([]byte(in))
		got := ""
		for _, f := range c.findings {
			if key, ok := strings.CutSuffix(f.Message, ": the last one counts: keep one"); ok {
				got += key
			}
		}
		if want != "" {
			want = `configuration key "` + want + `" is there twice`
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/relink-cni/relink/pkg/pool"
)

// TestPoolExamples says that the pools of docs/examples are as relink reads them, and that the network's configuration names them
// and is right.
func TestPoolExamples(t *testing.T) {
	checkPoolExample(t, "pools-vlan7.yaml", "80-pool.conflist", `["vlan7","vlan7-ipv6"]`)
	checkPoolExample(t, "pools-racks.yaml", "81-racks.conflist", `{"oneOf":["vlan9-rack1","vlan9-rack2"]}`)
}

// checkPoolExample compares the pools of a file with the key "pool" of a configuration, which is want.
func checkPoolExample(t *testing.T, file, conflist, want string) {
	t.Helper()
	pools := examplePools(t, file)
	var names []string
	for _, p := range pools {
		if _, err := p.Layout(); err != nil {
			t.Error(err)
		}
		if why := p.OverlapReason(pools); why != "" {
			t.Errorf("%s: %s", p.Metadata.Name, why)
		}
		names = append(names, p.Metadata.Name)
	}
	path := filepath.Join(root, "docs/examples", conflist)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var network struct {
		Plugins []struct {
			IPAM struct{ Pool json.RawMessage }
		}
	}
	if err := json.Unmarshal(b, &network); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, network.Plugins[0].IPAM.Pool); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(names)
	if got := compact.String(); err != nil || got != want || !strings.HasSuffix(strings.TrimSuffix(got, "}"), string(list)) {
		t.Errorf("the network has the pools %s, want %s, and the example of pools %s, %v", got, want, list, err)
	}
	out, err := exec.Command(filepath.Join(bin, "relink"), "validate", "--files-only", path).CombinedOutput()
	if want := "1 network in 1 file: 0 errors, 0 warnings\n"; err != nil || string(out) != want {
		t.Errorf("relink validate: %v: %q, not %q", err, out, want)
	}
}

// examplePools reads a file of docs/examples. A key that a pool does not have is an error.
func examplePools(t *testing.T, file string) (all []pool.Pool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs/examples", file))
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var object any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			pool.Pool
		}
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&read); err != nil {
			t.Errorf("%v in %s", err, text)
		}
		if read.APIVersion != pool.Group+"/"+pool.Version || read.Kind != "AddressPool" {
			t.Errorf("%s %s is no AddressPool of this relink", read.APIVersion, read.Kind)
		}
		all = append(all, read.Pool)
	}
}

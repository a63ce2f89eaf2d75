package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/relink-cni/relink/pkg/pool"
)

// TestPoolExamples says that the pools of docs/examples are as relink reads them, and that the network's configuration names them
// and is right.
func TestPoolExamples(t *testing.T) {
	pools := examplePools(t)
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
	path := filepath.Join(root, "docs/examples/80-pool.conflist")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var network struct {
		Plugins []struct{ IPAM struct{ Pool []string } }
	}
	if err := json.Unmarshal(b, &network); err != nil {
		t.Fatal(err)
	}
	if got := network.Plugins[0].IPAM.Pool; len(names) == 0 || !slices.Equal(got, names) {
		t.Errorf("the network has the pools %q, the example of pools %q", got, names)
	}
	out, err := exec.Command(filepath.Join(bin, "relink"), "validate", "--files-only", path).CombinedOutput()
	if want := "1 network in 1 file: 0 errors, 0 warnings\n"; err != nil || string(out) != want {
		t.Errorf("relink validate: %v: %q, not %q", err, out, want)
	}
}

// examplePools reads docs/examples/pools-vlan7.yaml. A key that a pool does not have is an error.
func examplePools(t *testing.T) (all []pool.Pool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs/examples/pools-vlan7.yaml"))
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

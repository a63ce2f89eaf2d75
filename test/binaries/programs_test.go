package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A limit is what a program may come to: each part that it does not need makes it start later, and can be attacked.
type limit struct {
	bytes     int64    // Stripped: a little above the present size.
	forbidden []string // No import path of a package that the program links begins with one of these.
}

// documents are what only tests read and draw documents with, and what only tests have at all.
var documents = []string{"github.com/yuin/goldmark", "mvdan.cc/sh", "github.com/rogpeppe/go-internal", "testing"}

// cluster is what reaches the Kubernetes API, the container runtime and Prometheus: relink-agent does that, once on a node.
var cluster = []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/metadata", "k8s.io/client-go/tools/cache", "k8s.io/api/", "google.golang.org/grpc",
	"google.golang.org/protobuf", "github.com/prometheus"}

// plugin is what a plugin has no use for, in addition: each start of a pod waits for several plugins to start. They are configured in JSON,
// and ask the agent.
var plugin = slices.Concat(cluster, documents, []string{"k8s.io/", "sigs.k8s.io/", "go.yaml.in/yaml", "github.com/spf13", "golang.org/x/term"})

var limits = map[string]limit{
	"relink": {11_800_000, slices.Concat(cluster, documents, []string{"k8s.io/client-go"})},
	// It asks the API once, watches nothing, and has the kinds of Kubernetes that pkg/kube needs.
	"kubectl-relink": {18_300_000, slices.Concat(documents, []string{"k8s.io/client-go/kubernetes", "github.com/prometheus", "google.golang.org/grpc", "github.com/vishvananda", "github.com/relink-cni/relink/checkpoint"})},
	"relink-agent":   {47_000_000, documents},
	// libcni, by which a plugin runs the one that it delegates to, links net/http.
	"relink-macvlan":     {8_700_000, plugin},
	"relink-vlan":        {8_700_000, plugin},
	"relink-checkpoint":  {7_400_000, plugin},
	"relink-host-access": {7_400_000, plugin},
	// It delegates to nobody, and touches no link.
	"relink-ipam": {5_600_000, slices.Concat(plugin, []string{"net/http", "crypto/tls", "github.com/vishvananda/netlink", "github.com/coreos/go-iptables"})},
}

// released returns the packages of the released programs by their names.
func released() map[string]string {
	programs := map[string]string{}
	for name, pkg := range renamed {
		programs[name] = pkg
	}
	for _, pkg := range named {
		if strings.HasPrefix(pkg, module+"/cmd/") {
			programs[filepath.Base(pkg)] = pkg
		}
	}
	return programs
}

// No program links what it must not, and none is larger than its limit.
func TestPrograms(t *testing.T) {
	t.Chdir("../..")
	if err := Build("bin/test"); err != nil {
		t.Fatal(err)
	}
	programs := released()
	if len(programs) != len(limits) {
		t.Errorf("%d programs have limits, of %v", len(limits), programs)
	}
	for name, pkg := range programs {
		most := limits[name]
		file, err := os.Stat(filepath.Join("bin/test", name))
		if err != nil {
			t.Fatal(err)
		}
		if file.Size() > most.bytes {
			t.Errorf("%s has %d bytes, more than %d", name, file.Size(), most.bytes)
		}
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil || !strings.Contains(string(out), pkg+"\n") {
			t.Fatalf("%s: %v: %s", pkg, err, out)
		}
		for linked := range strings.FieldsSeq(string(out)) {
			for _, f := range most.forbidden {
				if strings.HasPrefix(linked, f) {
					t.Errorf("%s links %s", name, linked)
				}
			}
		}
	}
}

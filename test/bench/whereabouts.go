package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/kubeapi"
)

const (
	// whereaboutsModule has the version of Whereabouts. It is a module of its own, because Whereabouts needs other versions of what
	// relink needs, too.
	whereaboutsModule  = "test/bench/whereabouts"
	whereaboutsPackage = "github.com/k8snetworkplumbingwg/whereabouts"
)

// versionFile has the version of Whereabouts, and crdPrefix begins the names of the files with its definitions. They are beside its
// program.
const (
	versionFile = "whereabouts-version"
	crdPrefix   = "whereabouts-crd-"
)

// buildWhereabouts puts the program of Whereabouts and its definitions into the directory.
func buildWhereabouts(bin string) error {
	build := exec.Command("go", "-C", whereaboutsModule, "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(bin, "whereabouts"), whereaboutsPackage+"/cmd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build Whereabouts: %w\n%s", err, out)
	}
	said, err := exec.Command("go", "-C", whereaboutsModule, "list", "-m", "-f", "{{.Version}} {{.Dir}}", whereaboutsPackage).Output()
	if err != nil {
		return fmt.Errorf("find the source of Whereabouts: %w", err)
	}
	version, source, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
	if err := os.WriteFile(filepath.Join(bin, versionFile), []byte(strings.TrimPrefix(version, "v")), 0o644); err != nil {
		return err
	}
	for _, kind := range []string{"ippools", "overlappingrangeipreservations"} {
		text, err := os.ReadFile(filepath.Join(source, "doc", "crds", "whereabouts.cni.cncf.io_"+kind+".yaml"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(bin, crdPrefix+kind), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// defineWhereabouts makes the definitions of Whereabouts' objects.
func defineWhereabouts(bin string, s *server) error {
	const collection = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/"
	for _, kind := range []string{"ippools", "overlappingrangeipreservations"} {
		text, err := os.ReadFile(filepath.Join(bin, crdPrefix+kind))
		if err != nil {
			return err
		}
		path := kubeapi.Collections["CustomResourceDefinition"] + "/" + kind + ".whereabouts.cni.cncf.io?fieldManager=bench"
		if _, err := s.Ask(http.MethodPatch, path, "application/apply-patch+yaml", text); err != nil {
			return err
		}
		err = awaitTrue("Whereabouts' "+kind, func() bool {
			_, status := s.Try(http.MethodGet, collection+kind, "", nil)
			return status == http.StatusOK
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// benchWhereabouts starts the pods of ten nodes with the program of Whereabouts, by its default configuration.
func benchWhereabouts(bin string, s *server, pods int) (row results.PoolBurst, err error) {
	if err := defineWhereabouts(bin, s); err != nil {
		return row, err
	}
	version, err := os.ReadFile(filepath.Join(bin, versionFile))
	if err != nil {
		return row, err
	}
	config, err := s.Config("https://"+kubeapi.Address, "whereabouts.conf", fmt.Sprintf("{token: %q}", kubeapi.AdminToken))
	if err != nil {
		return row, err
	}
	defaults := s.Path("whereabouts.json")
	if err := os.WriteFile(defaults, fmt.Appendf(nil, `{"kubernetes": {"kubeconfig": %q}}`, config), 0o600); err != nil {
		return row, err
	}
	groups := []string{"whereabouts.cni.cncf.io", "coordination.k8s.io"} // The API server renews a Lease of its own every 10 s.
	before, err := s.counted(groups...)
	if err != nil {
		return row, err
	}
	b := burst{nodes: burstNodes, podsOfNode: pods / burstNodes, atOnce: podsAtOnce, pause: pauseOfRuntime, always: true}
	b.add = func(node, pod int) (netip.Addr, error) {
		return ipamCall{
			bin: bin, plugin: "whereabouts", container: fmt.Sprintf("wa%d-%d", node, pod),
			keys: fmt.Sprintf(`"range": "10.40.0.0/16", "configuration_path": %q`, defaults),
		}.add()
	}
	o, err := b.run()
	if err != nil {
		return row, err
	}
	after, err := s.counted(groups...)
	return o.row("Whereabouts "+string(version), after.since(before)), err
}

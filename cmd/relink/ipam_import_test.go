package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/agentsocket"
)

const ippoolsYAML = `apiVersion: v1
kind: List
items:
- apiVersion: whereabouts.cni.cncf.io/v1alpha1
  kind: IPPool
  metadata: {name: 10.231.79.0-24, namespace: kube-system}
  spec:
    range: 10.231.79.0/24
    allocations:
      "5": {id: c1, podref: shop/web-0, ifname: net1}
      "6": {id: c2, podref: shop/web-1, ifname: net1}
      "300": {id: c3, podref: shop/web-2, ifname: net1}
      "7": {id: c4, podref: shop/web-3, ifname: net1}
`

// kubectl's JSON and YAML are read, from a file or from the standard input.
func TestIPPoolsAreRead(t *testing.T) {
	yaml := filepath.Join(t.TempDir(), "ippools")
	if err := os.WriteFile(yaml, []byte(strings.ReplaceAll(ippoolsYAML, `"5"`, "5")), 0o600); err != nil {
		t.Fatal(err)
	}
	const json = `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"IPPool","metadata":{},"spec":{"range":"10.231.79.0/24","allocations":{}}}`
	for name, test := range map[string]struct{ path, stdin, want string }{
		"YAML":           {yaml, "", ""},
		"YAML, stdin":    {"-", ippoolsYAML, ""},
		"JSON, stdin":    {"-", json, ""},
		"JSON in YAML":   {"-", "{kind: IPPool, apiVersion: whereabouts.cni.cncf.io/v1alpha1, spec: {range: 10.231.79.0/24}}", ""},
		"nothing":        {"-", "", "-: it is empty: make it anew by kubectl get ippools"},
		"no YAML":        {"-", "a: [", "-: yaml: line 1: did not find expected node content: nothing from there on was read: make it anew by kubectl get ippools"},
		"half of JSON":   {"-", json[:len(json)-9], "-: it is no JSON, or only a part of it: unexpected end of JSON input: make it anew by kubectl get ippools"},
		"wrong JSON":     {"-", `{"kind": ]`, "-: it is no JSON, or only a part of it: invalid character ']' looking for beginning of value: make it anew"},
		"a wrong range":  {"-", strings.ReplaceAll(json, "/24", ""), "-: it has no IPPool of Whereabouts: make it by kubectl get ippools.whereabouts.cni.cncf.io -A -o json (IPPool /: its spec.range \"10.231.79.0\" is no network)"},
		"JSON twice":     {"-", json + "\n" + json, "-: it has more than one document: put all into one list: make it anew by kubectl get ippools"},
		"YAML twice":     {"-", ippoolsYAML + "---\n" + ippoolsYAML, "-: it has more than one document: put all into one list"},
		"JSON and more":  {"-", json + "\nmore", "-: it has more than one document: put all into one list"},
		"another object": {"-", "kind: Pod", "-: it has no IPPool of Whereabouts"},
		"a key twice":    {"-", "kind: List\nkind: List", "-: yaml:"},
		"no file":        {yaml + "s", "", "open " + yaml + "s: no such file or directory"},
	} {
		_, err := readIPPools(test.path, strings.NewReader(test.stdin))
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// giving is an agent that gives all addresses but one.
type giving struct {
	pool.Agent
	closed string
}

func (g giving) Import(_ context.Context, in pool.Import) (pool.Imported, error) {
	made := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}, Closed: g.closed}
	for _, a := range in.Addresses {
		if a == netip.MustParseAddr("10.231.79.6") {
			made.Refused[a] = "node node2 has it (network lan)"
		} else {
			made.Pools[a] = "lan"
		}
	}
	return made, nil
}

func TestImportOfWhereabouts(t *testing.T) {
	dir := t.TempDir()
	cache, file := filepath.Join(dir, "cni"), filepath.Join(dir, "ippools.yaml")
	if err := os.MkdirAll(filepath.Join(cache, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(cache, "results", "3"): "{",
		file:                                 ippoolsYAML,
		filepath.Join(cache, "results", "1"): `{"kind":"cniCacheV1","containerId":"c1","ifName":"net1","networkName":"lan"}`,
		filepath.Join(cache, "results", "2"): `{"kind":"cniCacheV1","containerId":"c2","ifName":"net1","networkName":"lan"}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := &giving{closed: "the pool lan is not paused"}
	serves(t, agent)
	command := "ipam --data-dir " + dir + " import " + file + " --from whereabouts --network lan --pool lan --cni-cache " + cache
	const refused, ignored = "node node2 has it (network lan)", "it is no address of 10.231.79.0/24"
	for _, test := range []struct {
		more, closed string
		code         int
		want         []string
	}{
		{"", agent.closed, cli.Usage, []string{"relink: the pool lan is not paused\n"}},
		{" --dry-run", agent.closed, cli.Differs, []string{
			"ADDRESS", "10.231.79.5", "shop/web-0", "to import", refused, ignored, "1 to import, 1 refused, 2 ignored, 1 on other nodes\n",
			"without --dry-run, nothing would be taken over: the pool lan is not paused\n",
		}},
		{" -q", "", cli.Differs, []string{"10.231.79.6", refused, ignored}},
		{"", "", cli.Differs, []string{"10.231.79.5", "already there", refused, "1 already there, 1 refused, 2 ignored, 1 on other nodes\n"}},
		{" -o json", "", cli.Differs, []string{`"pools": [`, `"elsewhere": 1`, `"state": "refused"`}},
	} {
		agent.closed = test.closed
		code, out := runsTo(strings.Fields(command + test.more)...)
		if code != test.code {
			t.Errorf("%s: status %d, want %d\n%s", test.more, code, test.code, out)
		}
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is missing in\n%s", test.more, want, out)
			}
		}
		if strings.Contains(out, "invalid IP") {
			t.Errorf("%s: what has no address is shown with one:\n%s", test.more, out)
		}
		if test.more == " -q" && strings.Contains(out, "10.231.79.5") {
			t.Errorf("--quiet shows what is well:\n%s", out)
		}
	}
}

// An agent without a Kubernetes API knows no owners. The address is kept for the pod by its name.
func TestImportWithoutOwners(t *testing.T) {
	dir := t.TempDir()
	cache, from := filepath.Join(dir, "cni", "results"), filepath.Join(dir, "lan")
	for path, text := range map[string]string{
		filepath.Join(from, "10.231.79.5"): "c1\r\neth0",
		filepath.Join(cache, "1"):          `{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"lan","cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web-0"]]}`,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	serves(t, nil)
	command := "ipam --data-dir " + dir + " import " + from + " --network lan --cni-cache " + filepath.Dir(cache) + " --sticky=owner"
	const want = "the addresses of shop/web-0 are kept for these pods by their names, and not for their owners: run it again: the owner of the address is not known now: "
	if code, out := runsTo(strings.Fields(command)...); code != cli.Differs || !strings.Contains(out, "1 imported") || !strings.Contains(out, want) {
		t.Errorf("status %d\n%s", code, out)
	}
}

// serves lets an agent answer that has these pools, nil for one without a Kubernetes API.
func serves(t *testing.T, p serve.Pools) {
	t.Helper()
	t.Setenv(control.SocketEnv, agentsocket.Serve(t, serve.Handler(nil, serve.Sources{Pools: p}, nil)))
}

func TestImportIsCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"ipam import . --pool ": ":4\n", "ipam import . --from ": "host-local\nwhereabouts\n:4\n", "ipam import . --sticky=": "pod\nowner\n:4\n",
	} {
		if _, out := runsTo(append([]string{"__complete"}, strings.Split(args, " ")...)...); !strings.HasPrefix(out, want) {
			t.Errorf("%s is completed to\n%s\nwant\n%s", args, out, want)
		}
	}
}

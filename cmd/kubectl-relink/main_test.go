package main

import (
	"strings"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool/check"
	"github.com/relink-cni/relink/test/help"
)

func TestHelp(t *testing.T) {
	help.Check(t, newRoot, 6)
	help.CheckExamples(t, newRoot)
}

// kubectl has split the command line. What is wrong with it is said as the person has typed it.
func TestMalformedCommandLines(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for line, says := range map[string]string{
		"fenc node3":          `unknown verb "fenc": kubectl relink --help lists the verbs`,
		"check now":           `unexpected argument "now": kubectl relink check takes none`,
		"pools lan wan":       `unexpected argument "wan": kubectl relink pools [POOL]`,
		"blocks":              "an argument is missing: kubectl relink blocks POOL",
		"show web-0":          `invalid address "web-0": give an IP address such as 10.3.0.5 or fd00:3::5`,
		"status --namespace=": `invalid --namespace "": it must not be empty; leave it out for all`,
		"status --node":       "unknown flag --node: kubectl relink status --help lists the flags",
		"blocks lan -o wide":  `invalid --output "wide": must be table, json or yaml`,
		"pools":               "the Kubernetes API cannot be asked: no Kubernetes API is configured: give --kubeconfig FILE, or set $KUBECONFIG",
		"check --context x":   `the Kubernetes API cannot be asked: context "x" does not exist`,
	} {
		if code, out := runsTo(strings.Fields(line)...); code != cli.Usage || out != "relink: "+says+"\n" {
			t.Errorf("%s: status %d\n%s", line, code, out)
		}
	}
}

func TestFindingsAreShown(t *testing.T) {
	r := checkReport{Pools: 1, Blocks: 2, Claims: 3, Nodes: 4}
	if got := shown(false, r.write); got != "1 pool, 2 blocks, 3 claims, 4 nodes: nothing is wrong\n" {
		t.Errorf("nothing: %s", got)
	}
	r.Findings = []check.Finding{{Kind: check.NoNode, Object: "node node3", Evidence: "there is no such Node", Action: "kubectl relink fence node3"}}
	r.Problems = []string{"whether 1 owner of claims exist is unknown"}
	const want = "node node3: no node: there is no such Node\n  kubectl relink fence node3\nwhether 1 owner of claims exist is unknown\n"
	if got := shown(false, r.write); got != want+"1 pool, 2 blocks, 3 claims, 4 nodes: 1 finding\n" {
		t.Errorf("a finding: %s", got)
	}
	if got := shown(true, r.write); got != want {
		t.Errorf("quiet: %s", got)
	}
}

package pool

import (
	"errors"
	"slices"
	"testing"
)

// racked is a pool for the nodes with the labels, given as key, value, key, value.
func racked(name string, labels ...string) Pool {
	p := Pool{Metadata: Meta{Name: name}, Spec: Spec{NodeSelector: map[string]string{}}}
	for pair := range slices.Chunk(labels, 2) {
		p.Spec.NodeSelector[pair[0]] = pair[1]
	}
	return p
}

// A node takes the one pool of the choice that selects it. Otherwise the error says of each pool why not.
func TestChoose(t *testing.T) {
	pools := []Pool{racked("r1", "rack", "1"), racked("r2", "rack", "2"), racked("hall", "rack", "2", "hall", "b"), racked("all"), racked("going", "rack", "1")}
	pools[4].Metadata.DeletionTimestamp = "2026-03-01T11:00:00Z"
	const remedy = ": correct spec.nodeSelector or the labels of the node"
	const none = `the pool cannot be used: of the pools in "oneOf" none is for this node: `
	for name, test := range map[string]struct {
		choice []string
		labels map[string]string
		want   string
		err    string
	}{
		"the first":           {[]string{"r1", "r2"}, map[string]string{"rack": "1", "other": "x"}, "r1", ""},
		"the second":          {[]string{"r1", "r2"}, map[string]string{"rack": "2"}, "r2", ""},
		"all of the labels":   {[]string{"r1", "hall"}, map[string]string{"rack": "2", "hall": "b"}, "hall", ""},
		"without a selector":  {[]string{"r1", "all"}, nil, "all", ""},
		"one that is not":     {[]string{"r1", "gone"}, map[string]string{"rack": "1"}, "r1", ""},
		"none":                {[]string{"r1", "r2"}, map[string]string{"rack": "3"}, "", none + "the pool r1 is for nodes with rack=1, and node n has rack=3; the pool r2 is for nodes with rack=2, and node n has rack=3" + remedy},
		"without labels":      {[]string{"hall", "gone"}, nil, "", none + "the pool hall is for nodes with hall=b,rack=2, and node n has no label hall and no label rack; there is no AddressPool gone" + remedy},
		"only what differs":   {[]string{"hall"}, map[string]string{"rack": "2", "hall": "a"}, "", none + "the pool hall is for nodes with hall=b,rack=2, and node n has hall=a" + remedy},
		"one that is deleted": {[]string{"r1", "going"}, map[string]string{"rack": "1"}, "r1", ""},
		"only a deleted one":  {[]string{"r2", "going"}, map[string]string{"rack": "1"}, "", none + "the pool r2 is for nodes with rack=2, and node n has rack=1; the pool going is being deleted" + remedy},
		"more than one":       {[]string{"r1", "r2", "hall"}, map[string]string{"rack": "2", "hall": "b"}, "", `the pool cannot be used: the pools r2 and hall in "oneOf" are all for node n, and it can take only one` + remedy},
		"an empty label":      {[]string{"r1"}, map[string]string{"rack": ""}, "", none + "the pool r1 is for nodes with rack=1, and node n has rack=" + remedy},
		"one that selects it": {[]string{"r1"}, map[string]string{"rack": "1"}, "r1", ""},
	} {
		got, err := Choose(Choice(test.choice...), pools, Node{Name: "n", Labels: test.labels})
		if test.err == "" && (err != nil || got != test.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
		if test.err != "" && (!errors.Is(err, ErrUnknown) || err.Error() != test.err || got != "") {
			t.Errorf("%s: %q, %v\nwant %s", name, got, err, test.err)
		}
	}
}

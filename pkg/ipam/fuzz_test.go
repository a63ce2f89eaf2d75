package ipam

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// FuzzParse shows that no configuration makes parse panic, and that each error has a code. If a configuration is
// accepted, each of its addresses belongs to its subnet, and to one set only.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name": "pods", "ipam": {"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.20", "gateway": "10.3.0.30"}}`), "IP=10.3.0.9/24")
	f.Add([]byte(`{"cniVersion": "1.1.0", "name": "pods", "ipam": {"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "0.0.0.0/30"}], [{"subnet": "2001:db8::/64", "gateway": "fe80::1"}]], "routes": [{"dst": "::/0"}]}}`), "")
	f.Add([]byte(`{"name": "pods", "ipam": {"exclude": ["255.255.255.0-255.255.255.255", "::/1"], "sticky": "pod", "retain": "1h", "quarantine": "0s", "conflictDetection": {"probes": 1, "wait": "1s"}}, "runtimeConfig": {"ipRanges": [[{"subnet": "255.255.255.0/24"}]], "ips": ["::ffff:10.3.0.5"]}, "args": {"cni": {"ips": [null]}}}`), "K8S_POD_NAME=web-0;IP=")
	f.Fuzz(func(t *testing.T, config []byte, cniArgs string) {
		env, err := cniplugin.ParseArgs(cniArgs)
		if err != nil {
			return
		}
		n, err := parse(config, env)
		if err != nil {
			if coded := (*types.Error)(nil); !errors.As(err, &coded) || coded.Code == 0 {
				t.Errorf("%v has no code", err)
			}
			return
		}
		for i, set := range n.sets {
			for _, r := range set {
				expectSound(t, r)
				expectAlone(t, r, i, n.sets)
			}
		}
		for _, r := range n.requested {
			if !r.address.IsValid() || r.address.Is4In6() || r.refuse("x") == nil {
				t.Errorf("requested: %s", r.address)
			}
		}
		if n.detection != nil && (n.detection.Probes < 1 || n.detection.Wait <= 0) || n.policy.Retain < 0 || n.policy.Quarantine < 0 {
			t.Errorf("accepted %+v, %+v", n.policy, n.detection)
		}
	})
}

// expectSound fails the test if the range is not in its subnet, or gives an address that it must not give.
func expectSound(t *testing.T, r lease.Range) {
	t.Helper()
	if r.Last.Less(r.First) || !r.Subnet.Contains(r.First) || !r.Subnet.Contains(r.Last) || r.First.Is4In6() || r.Last.Is4In6() {
		t.Errorf("range %s of %s", r, r.Subnet)
	}
	if gives, _ := r.Gives(r.Gateway); gives || !r.Gateway.IsValid() {
		t.Errorf("gateway %q is given", r.Gateway)
	}
}

// expectAlone fails the test if another set has an end of this range of set i.
func expectAlone(t *testing.T, r lease.Range, i int, sets []lease.RangeSet) {
	t.Helper()
	for j, set := range sets {
		for _, o := range set {
			if (i != j || o.Span != r.Span) && (o.Contains(r.First) || o.Contains(r.Last)) {
				t.Errorf("%s of set %d and %s of set %d overlap", r, i, o, j)
			}
		}
	}
}

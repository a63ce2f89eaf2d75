package kube

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

func TestClaimOf(t *testing.T) {
	for name, test := range map[string]struct {
		networks, first, ifName string
		want                    string
		listed                  bool
		err                     string
	}{
		"no annotation":                {"", "", "net1", "", false, ""},
		"the other form":               {"lan@net1,shop/lan2", "", "net1", "", false, ""},
		"as KubeVirt has it":           {`[{"name":"lan","namespace":"shop","mac":"02:00:00:00:00:01","interface":"pod37a8eec1ce1","ipam-claim-reference":"db.lan"}]`, "", "pod37a8eec1ce1", "db.lan", true, ""},
		"another interface":            {`[{"name":"lan","interface":"pod1","ipam-claim-reference":"db.lan"}]`, "", "net1", "", false, ""},
		"as Multus counts":             {`[{"name":"a"},{"name":"b","ipam-claim-reference":"db.b"},{"name":"c","interface":"x","ipam-claim-reference":"db.c"}]`, "", "net2", "db.b", true, ""},
		"it counts all elements":       {`[{"name":"a","interface":"x","ipam-claim-reference":"db.a"},{"name":"b","ipam-claim-reference":"db.b"}]`, "", "net1", "", false, ""},
		"listed without a claim":       {`[{"name":"a"}]`, "", "net1", "", true, ""},
		"the default network":          {"", `[{"name":"default","namespace":"kube-system","ipam-claim-reference":"db.default"}]`, "eth0", "db.default", true, ""},
		"the default network, named":   {"", `[{"name":"default","interface":"pod0","ipam-claim-reference":"db.default"}]`, "pod0", "db.default", true, ""},
		"not the default network":      {`[{"name":"a","ipam-claim-reference":"db.a"}]`, `[{"name":"default","ipam-claim-reference":"db.default"}]`, "net1", "db.a", true, ""},
		"both say the same":            {`[{"interface":"eth0","ipam-claim-reference":"x"}]`, `[{"ipam-claim-reference":"x"}]`, "eth0", "x", true, ""},
		"one has a claim, one has not": {`[{"interface":"eth0"}]`, `[{"ipam-claim-reference":"x"}]`, "eth0", "x", true, ""},
		"they differ":                  {`[{"interface":"eth0","ipam-claim-reference":"x"}]`, `[{"ipam-claim-reference":"y"}]`, "eth0", "", false, "name two IPAMClaims for the interface eth0, \"x\" and \"y\": name one"},
		"torn":                         {`[{"interface":"eth0"`, "", "eth0", "", false, `the pod's annotation k8s.v1.cni.cncf.io/networks="[{\"interface\":\"eth0\"" is no list of networks`},
		"more than a list":             {`[{"interface":"eth0"}] []`, "", "eth0", "", false, "after top-level value"},
		"with null":                    {`[null,{"name":"a","ipam-claim-reference":"x"}]`, "", "net2", "x", true, ""},
		"an element that is none":      {`[{"interface":"eth0"},"net1"]`, "", "eth0", "", false, "cannot unmarshal string"},
		"empty":                        {`[]`, "", "eth0", "", false, ""},
		"no list":                      {"", `{"name":"default"}`, "eth0", "", false, "the pod's annotation v1.multus-cni.io/default-network="},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &metav1.ObjectMeta{Annotations: map[string]string{networksKey: test.networks, defaultNetworkKey: test.first}}
			got, listed, err := claimOf(pod, test.ifName)
			if test.err != "" {
				if !errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
				return
			}
			if err != nil || got != test.want || listed != test.listed {
				t.Errorf("%q, listed %v, %v, want %q, %v", got, listed, err, test.want, test.listed)
			}
		})
	}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestFulfilled(t *testing.T) {
	v4, both := prefixes("10.3.0.7/24"), prefixes("10.3.0.7/24", "fd00::7/64")
	for name, test := range map[string]struct {
		uid, status string
		ips         []netip.Prefix
		done        bool
		is          error
		err         string
	}{
		"no status":                 {"u", ``, v4, false, nil, ""},
		"no addresses":              {"u", `{"ownerPod":"x"}`, v4, false, nil, ""},
		"there already":             {"u", `{"ips":["10.3.0.7/24"]}`, v4, true, nil, ""},
		"in another order":          {"u", `{"ips":["fd00::7/64","10.3.0.7/24"]}`, both, true, nil, ""},
		"with another prefix":       {"u", `{"ips":["10.3.0.7/16"]}`, v4, true, nil, ""},
		"nothing to write":          {"u", ``, nil, true, nil, ""},
		"another address":           {"u", `{"ips":["10.3.0.8/24"]}`, v4, false, owner.ErrDiffers, "the IPAMClaim db.lan has [10.3.0.8/24], and the pod got [10.3.0.7/24]"},
		"one more":                  {"u", `{"ips":["10.3.0.7/24","fd00::7/64"]}`, v4, false, owner.ErrDiffers, "has [10.3.0.7/24 fd00::7/64], and the pod got [10.3.0.7/24]"},
		"one less":                  {"u", `{"ips":["10.3.0.7/24"]}`, both, false, owner.ErrDiffers, "has [10.3.0.7/24], and the pod got"},
		"made anew":                 {"v", `{"ips":["10.3.0.7/24"]}`, v4, false, owner.ErrDiffers, "the IPAMClaim db.lan was made anew: its UID is v, and was u"},
		"made anew and empty":       {"v", ``, v4, false, owner.ErrDiffers, "its UID is v, and was u"},
		"an address without prefix": {"u", `{"ips":["10.3.0.7"]}`, v4, false, owner.ErrInvalid, `the IPAMClaim db.lan has "10.3.0.7" in status.ips, which is no address with a prefix length`},
		"no list":                   {"u", `{"ips":"10.3.0.7/24"}`, v4, false, owner.ErrInvalid, `the status of the IPAMClaim db.lan: "json: cannot unmarshal string`},
	} {
		t.Run(name, func(t *testing.T) {
			var made objects.Object
			made.Metadata.Name, made.Metadata.UID, made.Status = "db.lan", types.UID(test.uid), json.RawMessage(test.status)
			done, err := alreadyFulfilled(made, owner.Fulfilment{Claim: owner.Claim{Name: "db.lan", UID: "u"}, IPs: test.ips})
			if done != test.done || !errors.Is(err, test.is) || (err == nil) != (test.is == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, %v, want %v, %v with %q", done, err, test.done, test.is, test.err)
			}
		})
	}
}
